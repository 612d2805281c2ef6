"""Which nodes share a kernel: maps and reductions over one index space, as many as fit together.

A region has one domain, the shape that everything in it is broadcast to, and all its reductions reduce the same axes of
that. So it is one nest of loops over the other axes, with sweeps over the reduced ones inside (`loops.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kforge.smith.graph import Shape, broadcast, placed

if TYPE_CHECKING:
    from kforge.smith.graph import Graph, Node


@dataclass
class Region:
    """Nodes of one kernel, in order."""

    domain: Shape
    axes: tuple[int, ...] | None = None
    """What its reductions reduce; None as long as it has none."""
    nodes: list[Node] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        return {node.name for node in self.nodes}

    def inputs(self) -> list[str]:
        own = self.names
        return list(dict.fromkeys(s for node in self.nodes for s in node.sources if s not in own))

    def outputs(self, graph: Graph) -> list[str]:
        """What somebody outside reads."""
        own = self.names
        outside = {s for node in graph if node.name not in own for s in node.sources} | set(graph.outputs)
        return [node.name for node in self.nodes if node.name in outside]


def _domain_of(node: Node, graph: Graph) -> Shape:
    return node.shape if node.kind == "map" else graph[node.sources[0]].shape


def _united(one: Region, other: Region) -> Region | None:
    """Both as one region, or None where they have no common index space."""
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
        # a smaller part may be what is left after the reduction, and nothing else: it would be computed many times,
        # and a reduction of its own would count its elements many times
        if axes is None or region.axes is not None or any(axis not in axes for axis in differing):
            return None
    return Region(domain, axes, [*one.nodes, *other.nodes])


class _Partition:
    """Regions under construction; a merge that would make two regions wait for each other is refused."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.region_of: dict[str, Region] = {}
        self.nodes = list(graph)
        self.order = {name: index for index, name in enumerate(graph.nodes)}

    def add(self, node: Node) -> None:
        region = Region(_domain_of(node, self.graph), node.axes if node.kind == "reduce" else None, [node])
        self.region_of[node.name] = region
        for source in node.sources:
            other = self.region_of.get(source)
            if other is not None and other is not region:
                region = self._merge(other, region) or region

    def _merge(self, one: Region, other: Region) -> Region | None:
        united = _united(one, other)
        if united is None or self._waits_for_itself(united):
            return None
        united.nodes.sort(key=lambda node: self.order[node.name])
        for name in united.names:
            self.region_of[name] = united
        return united

    def _waits_for_itself(self, region: Region) -> bool:
        """Whether something outside lies between two of its nodes."""
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


def partition(graph: Graph) -> list[Region]:
    """The regions of a graph in an order in which they can run; every map and reduction is in one."""
    parts = _Partition(graph)
    for node in graph:
        if node.kind in ("map", "reduce"):
            parts.add(node)
    regions: list[Region] = []
    for node in graph:
        region = parts.region_of.get(node.name)
        if region is not None and region not in regions:
            regions.append(region)
    return regions


def tails(graph: Graph, regions: list[Region]) -> dict[str, Region]:
    """By calls, the region of maps that alone reads each: one kernel could go on with them. A region is one's tail."""
    memory = {name: base for name, (base, _) in placed(graph).items()}
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
