"""Defines rules, and turns a rule for a single node into a rule for a whole graph.

The function of a rule gets a `Site`: a node and its surroundings. It returns a replacement (the name of an existing or
new node, or a number), or None if the rule does not apply. Nodes that nothing reads any more are removed automatically.
A replacement whose shape or dtype differs from the node's is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kforge.smith.frontend.trace import LOWERED_DTYPES
from kforge.smith.ir.graph import Builder, Graph, Ref, Shape, without_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kforge.smith.ir.graph import Node, Operand


@dataclass(frozen=True)
class Rule:
    """A rewrite of graphs that keeps their meaning."""

    name: str
    when: str
    """When the rule applies, in one line, for readers."""
    saves: str
    """What the rule saves, in one line, for readers."""
    apply: Callable[[Graph], Graph | None]
    """Returns the rewritten graph, or None if the rule does not apply."""
    algebraic: bool = False
    """Whether the rule saves work by algebra: no kernel for the module's own operators could save it."""


class _Surroundings:
    """A graph, and the readers of each of its nodes, which are computed only if a rule asks for them."""

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
        """A builder that contains the whole graph. Nodes that are added to it are inserted right before the site's
        node."""
        builder = Builder(self.graph)
        builder.origin = self.node.origin
        return builder

    def source(self, place: int = 0) -> Node | None:
        """Return the node at this position of the inputs. None if there is a number, or no such input."""
        operand = self.node.inputs[place] if place < len(self.node.inputs) else None
        return self.graph[operand] if isinstance(operand, str) else None

    def alone(self, name: str) -> bool:
        """Return whether exactly one node reads this node and it is not an output. If that reader is replaced, this
        node is removed, too."""
        return name not in self.graph.outputs and len(self.readers[name]) == 1


def node_rule(
    name: str, *, when: str, saves: str, algebraic: bool = False
) -> Callable[[Callable[[Site], Operand | None]], Rule]:
    """Return a decorator that makes a rule from a function of a site. The rule calls the function once for every node,
    in order."""

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
    """Return the graph with the site's node replaced by `answer`, or None if the replacement does not fit."""
    graph, node = site.graph, site.node
    if answer == node.name:
        return None
    if not isinstance(answer, str):
        maps = all(reader.kind == "map" for reader in site.readers[node.name])
        return substituted(graph, {node.name: answer}) if maps and not node.shape and not _given(site) else None
    made = [each for name, each in site.builder.nodes.items() if name not in graph.nodes]
    if any(each.kind in ("map", "reduce") and each.dtype not in LOWERED_DTYPES for each in made):
        return None  # no kernel can compute this dtype
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
    """Return the graph in which every reader and every output uses the replacement. Unused nodes are removed."""

    def renamed(name: str) -> Ref:
        return Ref(str(instead.get(name, name)))

    nodes = {
        node.name: replace(
            node,
            inputs=tuple(instead.get(each, each) if isinstance(each, str) else each for each in node.inputs),
            arguments=without_refs(node.arguments, renamed) if node.kind == "call" else node.arguments,
        )
        if any(source in instead for source in node.sources)
        else node
        for node in graph
    }
    outputs = tuple(str(instead.get(name, name)) for name in graph.outputs)
    return replace(graph, nodes=nodes, outputs=outputs).live()


def is_number(operand: Operand | None) -> bool:
    """Return whether the operand is a plain number, and not a bool."""
    return isinstance(operand, int | float) and not isinstance(operand, bool)


def aligned(axes: tuple[int, ...], shape: Shape, within: Shape) -> tuple[int, ...]:
    """Return the axes of `shape` that correspond to these axes of `within`, the shape to which it is broadcast. Axes
    that `shape` lacks are left out."""
    missing = len(within) - len(shape)
    return tuple(axis - missing for axis in axes if axis >= missing)


def constant_along(axes: tuple[int, ...], shape: Shape, within: Shape) -> bool:
    """Return whether a tensor of this shape is constant along these axes of `within`, the shape to which it is
    broadcast."""
    return all(shape[axis] == 1 for axis in aligned(axes, shape, within))


def axes_before(old: Shape, new: Shape, axes: Collection[int]) -> list[int] | None:
    """Return the axes of `old` that a reshape turns into these axes of `new`, or None if they are not whole axes of
    `old`."""
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
    """Yield which axes of `old` a reshape turns into which axes of `new`, as the smallest groups of equal size."""
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
