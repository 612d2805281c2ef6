"""Recognises exponentials of v - max(v), which are at most 1, and makes the logarithm of their sum more exact.

If two such logarithms are subtracted, as in the divergence of nearly equal distributions, they nearly cancel, and the
rounding error of the sums dominates. So a language may sum the multiples of 2^-12 separately from the remainders: for
up to 4096 numbers of at most 1, the sum of the multiples is exact in any order, and the rounding error of the
remainders is thousands of times smaller than that of an ordinary sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.rewrite.rule import node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Graph, Node, Operand
    from kforge.smith.rewrite.rule import Site


def is_from_the_largest(node: Node, graph: Graph) -> bool:
    """Return whether the operand of this map is v - max(v)."""
    below = graph[node.sources[0]] if node.sources else None
    if below is None or below.kind != "map" or below.function != "sub":
        return False
    value, level = below.inputs
    largest = graph[level] if isinstance(level, str) else None
    return largest is not None and (largest.kind, largest.function) == ("reduce", "max") and largest.sources == (value,)


def is_one_at_least(operand: Operand, graph: Graph) -> bool:
    """Return whether the operand is a sum of exponentials of v - max(v). Such a sum is at least 1, because its largest
    term is 1."""
    node = graph[operand] if isinstance(operand, str) else None
    if node is None or (node.kind, node.function) != ("reduce", "sum"):
        return False
    element = graph[node.sources[0]]
    if (element.kind, element.function) != ("map", "exp") or not is_from_the_largest(element, graph):
        return False
    largest = graph[str(graph[element.sources[0]].inputs[1])]
    return set(largest.axes) <= set(node.axes)


@node_rule(
    "sum of exponentials in two parts",
    when="log(sum(exp(v - max(v)))) in a graph with another logarithm",
    saves="the rounding error that remains if the two logarithms cancel",
)
def in_two_parts(site: Site) -> Operand | None:
    node, b = site.node, site.builder
    element = site.source() if (node.kind, node.function) == ("reduce", "sum") else None
    if element is None or (element.kind, element.function) != ("map", "exp"):
        return None
    logarithms = [each for each in site.graph if (each.kind, each.function) == ("map", "log")]
    is_logged = any(node.name in each.sources for each in logarithms)
    if not is_logged or len(logarithms) < 2 or not is_from_the_largest(element, site.graph):
        return None
    parts = (b.reduce("sum", b.map(part, element.name), node.axes) for part in ("coarse", "fine"))
    return b.map("add", *parts)
