"""What a rule is, and how a rule for a single node becomes one for a whole graph.

A rule gets a `Site`: a node and its surroundings. It returns a replacement (the name of a node, old or made with the
site's builder, or a number), or None. It need not clean up: nodes that nothing reads are removed, and a replacement of
another shape or dtype than the node's is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kforge.smith.frontend.trace import LOWERED_DTYPES
from kforge.smith.ir.graph import Builder, Graph, Ref, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kforge.smith.ir.graph import Node, Operand


@dataclass(frozen=True)
class Rule:
    name: str
    when: str
    """When it applies, in one line."""
    saves: str
    """What it saves, in one line."""
    apply: Callable[[Graph], Graph | None]
    """Returns the rewritten graph, or None where the rule does not apply."""
    algebraic: bool = False
    """Whether it saves work that no kernel for the same operators could save."""


class _Surroundings:
    """A graph and the readers of each node, computed when the first rule asks."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def readers(self) -> Mapping[str, list[Node]]:
        return self.graph.readers()


class Site:
    """A node of a graph, its surroundings, and a builder for its replacement."""

    def __init__(self, around: _Surroundings, node: Node) -> None:
        self.around = around
        self.graph = around.graph
        self.node = node

    @property
    def readers(self) -> Mapping[str, list[Node]]:
        return self.around.readers

    @cached_property
    def builder(self) -> Builder:
        """The builder. It knows the whole graph, and inserts new nodes right before the node."""
        builder = Builder(self.graph)
        builder.origin = self.node.origin
        return builder

    def source(self, place: int = 0) -> Node | None:
        """Return the input at this position; None where it is a number."""
        operand = self.node.inputs[place] if place < len(self.node.inputs) else None
        return self.graph[operand] if isinstance(operand, str) else None

    def alone(self, name: str) -> bool:
        """Return whether this node is read once and is not an output: it is then removed with its reader."""
        return name not in self.graph.outputs and len(self.readers[name]) == 1


def node_rule(
    name: str, *, when: str, saves: str, algebraic: bool = False
) -> Callable[[Callable[[Site], Operand | None]], Rule]:
    """Make a rule from a function of a site, which is tried once at every node, in order."""

    def made(match: Callable[[Site], Operand | None]) -> Rule:
        def apply(graph: Graph) -> Graph | None:
            around = _Surroundings(graph)
            for each in list(graph.nodes):
                if each not in around.graph.nodes:  # removed together with its reader
                    continue
                site = Site(around, around.graph[each])
                answer = match(site)
                after = None if answer is None else rewritten(site, answer)
                if after is not None:
                    around = _Surroundings(after)
            return None if around.graph is graph else around.graph

        return Rule(name, when, saves, apply, algebraic)

    return made


def rewritten(site: Site, answer: Operand) -> Graph | None:
    """Return the graph with the replacement; None where it does not fit."""
    graph, node = site.graph, site.node
    if answer == node.name:
        return None
    if not isinstance(answer, str):
        maps = all(reader.kind == "map" for reader in site.readers[node.name])
        return substituted(graph, {node.name: answer}) if maps and not node.shape and not _given(site) else None
    made = [each for name, each in site.builder.nodes.items() if name not in graph.nodes]
    if any(each.kind in ("map", "reduce") and each.dtype not in LOWERED_DTYPES for each in made):
        return None  # no kernel could be written for it
    standing = site.builder.nodes[answer]
    if (standing.shape, standing.dtype) != (node.shape, node.dtype):
        return None
    nodes: dict[str, Node] = {}
    for each in graph:
        if each is node:
            nodes.update({new.name: new for new in made})
        nodes[each.name] = each
    return substituted(replace(graph, nodes=nodes), {node.name: answer})


def _given(site: Site) -> bool:
    return site.node.name in site.graph.outputs


def substituted(graph: Graph, instead: Mapping[str, Operand]) -> Graph:
    """Let every reader, and every output, read the replacement; unused nodes are removed."""
    nodes = {
        node.name: replace(
            node,
            inputs=tuple(instead.get(each, each) if isinstance(each, str) else each for each in node.inputs),
            arguments=_in_arguments(node.arguments, instead) if node.kind == "call" else node.arguments,
        )
        if any(source in instead for source in node.sources)
        else node
        for node in graph
    }
    outputs = tuple(str(instead.get(name, name)) for name in graph.outputs)
    return replace(graph, nodes=nodes, outputs=outputs).live()


def _in_arguments(arguments: Any, instead: Mapping[str, Operand]) -> Any:
    match arguments:
        case Ref(name):
            return Ref(str(instead.get(name, name)))
        case dict():
            return {key: _in_arguments(value, instead) for key, value in arguments.items()}
        case list() | tuple():
            return type(arguments)(_in_arguments(value, instead) for value in arguments)
    return arguments


def is_number(operand: Operand | None) -> bool:
    """Return whether it is a number other than a bool."""
    return isinstance(operand, int | float) and not isinstance(operand, bool)


def aligned(axes: tuple[int, ...], shape: Shape, within: Shape) -> tuple[int, ...]:
    """Return which axes of `shape` correspond to these axes of `within`, to which it is broadcast; missing axes are
    left out."""
    missing = len(within) - len(shape)
    return tuple(axis - missing for axis in axes if axis >= missing)


def constant_along(axes: tuple[int, ...], shape: Shape, within: Shape) -> bool:
    """Return whether a tensor of this shape does not change along these axes of the shape to which it is broadcast."""
    return all(shape[axis] == 1 for axis in aligned(axes, shape, within))


def axes_before(old: Shape, new: Shape, axes: Collection[int]) -> list[int] | None:
    """Return which axes of `old` become these axes of `new` in a reshape; None where no whole axes do."""
    if 0 in new:
        return None
    before: list[int] = []
    for ours, theirs in groups(old, new):
        kinds = {axis in axes for axis in theirs if new[axis] != 1}
        if len(kinds) > 1:
            return None
        before += ours if True in kinds else []
    return before


def groups(old: Shape, new: Shape) -> Iterable[tuple[list[int], list[int]]]:
    """Return which axes become which in a reshape: the smallest groups of the same size."""
    i = j = 0
    while i < len(old) or j < len(new):
        ours, theirs = [i] if i < len(old) else [], [j] if j < len(new) else []
        i, j = i + 1, j + 1
        sizes = [math.prod(old[axis] for axis in ours), math.prod(new[axis] for axis in theirs)]
        while sizes[0] != sizes[1]:
            if sizes[0] < sizes[1]:
                ours, sizes[0], i = [*ours, i], sizes[0] * old[i], i + 1
            else:
                theirs, sizes[1], j = [*theirs, j], sizes[1] * new[j], j + 1
        yield ours, theirs
