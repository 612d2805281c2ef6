"""Turns a region (the nodes of one kernel) into a nest of loops, with the strides of each operand along each loop.

Axes are merged, so that a nest has few long loops instead of many short ones. The result is data without text of any
language: every decision is made here, and a language (`languages/`) only writes the loops down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kforge.smith.ir.functions import MAPS
from kforge.smith.ir.graph import placed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Graph, Node, Shape, Strides


@dataclass(frozen=True)
class Loop:
    """One loop of a nest: its number of iterations, and whether it goes along a reduced or scanned axis. In a nest of
    maps only, `reduced` is true for every loop."""

    size: int
    reduced: bool


@dataclass(frozen=True)
class Buffer:
    """A tensor that a kernel reads or writes, with its stride along each loop (`steps`)."""

    name: str
    base: str
    """Name of the node that owns the memory in which this tensor lies."""
    dtype: str
    steps: tuple[int, ...]
    offset: int = 0
    """Index of the tensor's first element in the memory of `base`."""


@dataclass(frozen=True)
class Sweep:
    """One pass over the elements of a place: `elements` are computed for each element, `reductions` over all elements,
    and `after` once when the pass has ended."""

    elements: tuple[Node, ...]
    reductions: tuple[Node, ...]
    after: tuple[Node, ...]


@dataclass(frozen=True)
class Nest:
    """All loops of one kernel. Outer loops go over places (such as rows), which are independent of each other; the
    reduced loops go over the elements of one place, once per sweep."""

    loops: tuple[Loop, ...]
    buffers: tuple[Buffer, ...]
    outputs: tuple[str, ...]
    before: tuple[Node, ...]
    """Values of a place that are computed once, before its first sweep."""
    sweeps: tuple[Sweep, ...]
    kept: tuple[str, ...]
    """Names of values per element that one sweep stores for a later sweep, because computing them again would cost
    more."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order in which the kernel computes them."""
        swept = (node for sweep in self.sweeps for node in (*sweep.elements, *sweep.reductions, *sweep.after))
        return (*self.before, *swept)

    @property
    def title(self) -> str:
        """The comment above a kernel: the operators that it computes, and the sizes of its loops."""
        origins = dict.fromkeys(node.origin for node in self.nodes if node.origin)
        return f"{', '.join(origins) or 'maps'}: {' x '.join(str(loop.size) for loop in self.loops) or '1'}"

    @property
    def scans(self) -> tuple[Node, ...]:
        return tuple(node for sweep in self.sweeps for node in sweep.elements if node.kind == "scan")

    @property
    def inner(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.reduced)

    @property
    def lanes_are_reduced(self) -> bool:
        """Whether the innermost loop is a reduced one. Also true if no loop is reduced."""
        return not self.inner or self.loops[-1].reduced

    @property
    def memories(self) -> tuple[Buffer, ...]:
        """The arguments of the kernel: one buffer for each memory, first memory that is read, then memory that is
        written. An input that an output overwrites in place is left out."""
        found: dict[tuple[bool, str], Buffer] = {}
        for each in self.buffers:
            if each.name in self.outputs or not self.is_overwritten(each):
                found.setdefault((each.name in self.outputs, each.base), each)
        return tuple(found.values())

    def is_overwritten(self, buffer: Buffer) -> bool:
        """Return whether an output lies in exactly the same memory as this buffer, element by element."""
        written = (each for each in self.buffers if each.name in self.outputs)
        return any(
            (each.base, each.steps, each.offset) == (buffer.base, buffer.steps, buffer.offset) for each in written
        )

    def buffer(self, name: str) -> Buffer:
        return next(each for each in self.buffers if each.name == name)


def nest(region: Region, graph: Graph, keep_above: int = 8) -> Nest:
    """Return the loops of a region.

    `keep_above` is a number of operations: a value that costs more is stored for the next sweep, a cheaper value is
    computed again.
    """
    axes = set(region.axes or ())
    if not axes:  # elementwise: one sweep over all elements
        axes = set(range(len(region.domain)))
    outputs = tuple(region.outputs(graph))
    names = [*region.inputs(), *outputs]
    places = placed(graph)
    steps = {name: _steps(graph[name].shape, places[name].strides, region.domain) for name in names}
    loops, walks = _collapsed(region.domain, [axis in axes for axis in range(len(region.domain))], steps)
    buffers = tuple(
        Buffer(name, places[name].base, graph[name].dtype, walks[name], places[name].offset) for name in names
    )
    before, sweeps = _sweeps(region)
    return Nest(loops, buffers, outputs, before, sweeps, _kept(sweeps, keep_above))


def _steps(shape: Shape, strides: Strides, domain: Shape) -> Strides:
    """Return the tensor's stride along each axis of the domain. The stride is zero along axes where the tensor is
    broadcast."""
    missing = len(domain) - len(shape)
    own = (0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True))
    return (0,) * missing + tuple(own)


def _collapsed(
    domain: Shape, reduced: Sequence[bool], steps: dict[str, tuple[int, ...]]
) -> tuple[tuple[Loop, ...], dict[str, tuple[int, ...]]]:
    """Return the loops, and the strides of each operand along them. Axes of size one are dropped; neighbouring axes are
    merged if every operand can walk through both as one."""
    loops: list[Loop] = []
    walks: dict[str, list[int]] = {name: [] for name in steps}
    for axis, size in enumerate(domain):
        if size == 1:
            continue
        same_kind = bool(loops) and loops[-1].reduced == reduced[axis]
        if same_kind and all(walk[-1] == steps[name][axis] * size for name, walk in walks.items()):
            loops[-1] = replace(loops[-1], size=loops[-1].size * size)
            for name, walk in walks.items():
                walk[-1] = steps[name][axis]
            continue
        loops.append(Loop(size, reduced[axis]))
        for name, walk in walks.items():
            walk.append(steps[name][axis])
    return tuple(loops), {name: tuple(walk) for name, walk in walks.items()}


def _is_element(node: Node, region: Region) -> bool:
    """Return whether the node has one value per element of a sweep. Otherwise it has one value per place."""
    if region.axes is None:
        return True
    padded = (1,) * (len(region.domain) - len(node.shape)) + tuple(node.shape)
    return node.kind in ("map", "scan") and any(padded[axis] != 1 for axis in region.axes)


def _sweeps(region: Region) -> tuple[tuple[Node, ...], tuple[Sweep, ...]]:
    """Return the nodes that come before the first sweep, and the sweeps. Each node is in the earliest sweep that its
    inputs allow."""
    level: dict[str, int] = {}
    elements = {node.name for node in region.nodes if _is_element(node, region)}
    for node in region.nodes:
        own = [level[s] for s in node.sources if s in level]
        if node.kind == "reduce":
            # a reduction belongs to the sweep that computes its operand; an input is read in the first sweep
            level[node.name] = max(own, default=1) if node.sources[0] in elements else max([1, *own])
        elif node.name in elements:
            # values that need a reduction can only be used in the next sweep
            waits = [level[s] + (s not in elements) for s in node.sources if s in level]
            level[node.name] = max([1, *waits])
        else:
            level[node.name] = max(own, default=0)
    count = max([1, *(level[n.name] for n in region.nodes if n.name in elements or n.kind == "reduce")])
    before = tuple(n for n in region.nodes if level[n.name] == 0)
    sweeps = []
    for number in range(1, count + 1):
        here = [node for node in region.nodes if level[node.name] == number]
        sweeps.append(
            Sweep(
                elements=tuple(n for n in here if n.name in elements),
                reductions=tuple(n for n in here if n.kind == "reduce"),
                after=tuple(n for n in here if n.kind == "map" and n.name not in elements),
            )
        )
    return before, tuple(sweeps)


def cost(node: Node) -> int:
    """Return a rough number of operations that the node takes per element."""
    return MAPS[node.function].cost if node.kind == "map" else 4


def _kept(sweeps: tuple[Sweep, ...], above: int) -> tuple[str, ...]:
    costs: dict[str, int] = {}
    made_in: dict[str, int] = {}
    for number, sweep in enumerate(sweeps):
        for node in sweep.elements:
            costs[node.name] = cost(node) + sum(costs.get(s, 0) for s in node.sources)
            made_in[node.name] = number
    kept = []
    for number, sweep in enumerate(sweeps):
        for node in (*sweep.elements, *sweep.reductions):
            for source in node.sources:
                if made_in.get(source, number) < number and costs[source] > above and source not in kept:
                    kept.append(source)
    return tuple(kept)


def maps_needed(nest: Nest, names: Collection[str]) -> tuple[Node, ...]:
    """Return the maps of the first sweep from which the named values are computed, back to the scans before them."""
    wanted = set(names)
    found: list[Node] = []
    for node in reversed(nest.sweeps[0].elements):
        if node.name in wanted and node.kind == "map":
            wanted.update(node.sources)
            found.append(node)
    return tuple(reversed(found))


def elements_needed(nest: Nest, number: int) -> tuple[Node, ...]:
    """Return the nodes that sweep `number` computes for each element: its own, and again the nodes of earlier sweeps
    that it needs and that were not kept."""
    everything = [node for sweep in nest.sweeps[: number + 1] for node in sweep.elements]
    sweep = nest.sweeps[number]
    wanted = {s for node in sweep.reductions for s in node.sources}
    wanted |= {node.name for node in sweep.elements if node.name in nest.outputs or node.name in nest.kept}
    needed: set[str] = set()
    own = {node.name for node in sweep.elements}
    for node in reversed(everything):
        if node.name in wanted:
            needed.add(node.name)
            if node.name in own or node.name not in nest.kept:
                wanted.update(node.sources)
    return tuple(node for node in everything if node.name in needed)


def work(nest: Nest) -> int:
    """Return a rough number of operations that the whole nest takes."""
    each = sum(cost(n) for sweep in nest.sweeps for n in sweep.elements) + len(nest.buffers)
    return each * math.prod(loop.size for loop in nest.loops)
