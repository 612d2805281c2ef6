"""Decides which nodes share a kernel: maps together with reductions, or maps together with scans.

The nodes of one kernel are a region. A region has one domain: the shape to which all its nodes are broadcast. All its
reductions reduce the same axes of the domain, or all its scans go along the same axis in the same direction. So a
region can be written as loops over the other axes, with sweeps over the reduced or scanned axes inside (`loops.py`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kforge.smith.ir.graph import Shape, broadcast, placed, with_pieces

if TYPE_CHECKING:
    from collections.abc import Collection

    from kforge.smith.ir.graph import Graph, Node


@dataclass
class Region:
    """The nodes that share one kernel, in the order of the graph."""

    domain: Shape
    axes: tuple[int, ...] | None = None
    """The axes that its reductions reduce or its scans go along. None if it has neither."""
    nodes: list[Node] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        return {node.name for node in self.nodes}

    def inputs(self) -> list[str]:
        own = self.names
        return list(dict.fromkeys(s for node in self.nodes for s in node.sources if s not in own))

    def outputs(self, graph: Graph) -> list[str]:
        """Return the names of the region's nodes that something outside the region reads, or that the graph returns."""
        own = self.names
        outside = {s for node in graph if node.name not in own for s in node.sources} | set(graph.outputs)
        return [node.name for node in self.nodes if node.name in outside]


def _domain_of(node: Node, graph: Graph) -> Shape:
    return graph[node.sources[0]].shape if node.kind == "reduce" else node.shape


def _go_together(one: Region, other: Region) -> bool:
    """Return whether the kinds of nodes of both regions may share a kernel.

    Scans share a kernel only with maps and with scans in the same direction, and no scan may depend on another scan.
    """
    kinds = {node.kind for node in (*one.nodes, *other.nodes)}
    scans = [node for node in (*one.nodes, *other.nodes) if node.kind == "scan"]
    if not scans:
        return True
    alike = "reduce" not in kinds and len({node.arguments.backwards for node in scans}) == 1
    return alike and not _depend({node.name for node in scans}, [*one.nodes, *other.nodes])


def _depend(scans: set[str], nodes: list[Node]) -> bool:
    """Return whether one of the scans depends, directly or through other nodes, on another of them."""
    after: set[str] = set()
    for node in nodes:
        if any(source in after for source in node.sources):
            if node.kind == "scan":
                return True
            after.add(node.name)
        elif node.name in scans:
            after.add(node.name)
    return False


def _united(one: Region, other: Region) -> Region | None:
    """Return both regions as one, or None if no single nest of loops can compute both."""
    if not _go_together(one, other):
        return None
    if one.axes is not None and other.axes is not None and one.axes != other.axes:
        return None
    axes = one.axes if one.axes is not None else other.axes
    if len(one.domain) != len(other.domain):
        return None
    try:
        domain = broadcast(one.domain, other.domain)
    except ValueError:
        return None
    for region in (one, other):
        differing = [axis for axis, size in enumerate(region.domain) if size != domain[axis]]
        if not differing:
            continue
        # a region of smaller shape may join only if it has one value per reduced row: otherwise it would be computed
        # many times, and its own reductions would count its elements many times
        if axes is None or region.axes is not None or any(axis not in axes for axis in differing):
            return None
    return Region(domain, axes, [*one.nodes, *other.nodes])


class _Partition:
    """The regions of a graph while they are being merged. A merge is refused if the merged region would have to wait
    for its own result."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.region_of: dict[str, Region] = {}
        self.nodes = list(graph)
        self.order = {name: index for index, name in enumerate(graph.nodes)}

    def add(self, node: Node) -> None:
        region = Region(_domain_of(node, self.graph), None if node.kind == "map" else node.axes, [node])
        self.region_of[node.name] = region
        for source in node.sources:
            other = self.region_of.get(source)
            if other is not None and other is not region:
                region = self._merge(other, region) or region

    def unite_siblings(self) -> None:
        """Merge regions that do not depend on each other but read the same large tensor, so that the tensor is read
        once."""
        places = placed(self.graph)
        changed = True
        while changed:
            changed = False
            regions = self.regions()
            for one, other in itertools.combinations(regions, 2):
                if one.domain != other.domain or one.axes != other.axes:
                    continue
                shared = {places[name].base for name in one.inputs()} & {places[name].base for name in other.inputs()}
                large = any(self.graph[name].size >= math.prod(one.domain) for name in shared)
                if large and self._merge(one, other) is not None:
                    changed = True
                    break

    def regions(self) -> list[Region]:
        """Return each region once, in the order of the first node of each."""
        found: dict[int, Region] = {}
        for name in self.graph.nodes:
            if (region := self.region_of.get(name)) is not None:
                found.setdefault(id(region), region)
        return list(found.values())

    def _merge(self, one: Region, other: Region) -> Region | None:
        united = _united(one, other)
        if united is None or self._waits_for_itself(united):
            return None
        united.nodes.sort(key=lambda node: self.order[node.name])
        for name in united.names:
            self.region_of[name] = united
        return united

    def _waits_for_itself(self, region: Region) -> bool:
        """Return whether a node outside the region depends on one of the region's nodes, and another of the region's
        nodes depends on it. Such a region could not run as one kernel."""
        own = region.names
        tainted: set[str] = set()
        places = [self.order[name] for name in own]
        for node in self.nodes[min(places) : max(places) + 1]:
            if node.name in own:
                if any(source in tainted for source in node.sources):
                    return True
            elif any(source in own or source in tainted for source in node.sources):
                tainted.add(node.name)
        return False


def partition(graph: Graph, kinds: Collection[str] = ("map", "reduce")) -> list[Region]:
    """Return the regions of a graph, in an order in which they can run. Every node of the given kinds is in exactly one
    region."""
    parts = _Partition(graph)
    for node in graph:
        if node.kind in kinds:
            parts.add(node)
    parts.unite_siblings()
    return parts.regions()


def tails(graph: Graph, regions: list[Region]) -> dict[str, Region]:
    """Return, by the name of a call, the region of maps that can be appended to the call's kernel (its tail).

    A region can be the tail only if nothing else reads the call's result. No region is the tail of two calls.
    """
    memory = {name: place.base for name, place in placed(graph).items()}
    readers = graph.readers()
    found = {}
    for region in regions:
        calls = [memory[name] for name in region.inputs() if graph[memory[name]].kind == "call"]
        for call in sorted(calls, key=list(graph.nodes).index, reverse=True) if region.axes is None else ():
            views = {name for name, base in memory.items() if base == call}
            outside = {node.name for name in views for node in readers[name]} - views - region.names
            if not outside and views.isdisjoint(graph.outputs):
                found[call] = region
                break
    return found


def only_read_by(region: Region, graph: Graph) -> list[Node]:
    """Return the nodes that this region reads, that nothing else reads, and that the graph does not return."""
    readers, own = graph.readers(), region.names
    found = [name for name in region.inputs() if {reader.name for reader in readers[name]} <= own]
    return [graph[name] for name in found if name not in graph.outputs]


def traffic(graph: Graph) -> int:
    """Return the number of elements that all kernels of a graph's maps, reductions and scans read and write."""
    whole = with_pieces(graph)
    regions = partition(whole, ("map", "reduce", "scan"))
    return sum(whole[name].size for region in regions for name in (*region.inputs(), *region.outputs(whole)))
