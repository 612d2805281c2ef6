"""Replaces divisions by a value that many elements share: its inverse is computed once, and each element is multiplied
by it.

The result is exact to one unit in the last place if the inverse is finite. The inverse of a subnormal number is
infinite, so the rule applies only to divisors that cannot be subnormal. Zero is allowed: division and multiplication
give the same infinities and NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.rewrite.operators.exponentials import is_one_at_least
from kforge.smith.rewrite.plain import never_negative
from kforge.smith.rewrite.rule import is_number, node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Graph, Operand
    from kforge.smith.rewrite.rule import Site

SMALLEST = 1e-37
"""Least value that a divisor must be known to have. It is well above the subnormal numbers, so that the inverse is
finite."""
MANY = 4
"""Fewest elements per divisor for which computing the inverse separately is faster."""


def _has_inverse(graph: Graph, operand: str) -> bool:
    """Return whether the operations that compute the value guarantee that it does not lie between zero and SMALLEST."""
    node = graph[operand]
    match node.kind, node.function, node.inputs:
        case "map", "sqrt", _:  # the square root of the smallest number is 4e-23
            return True
        case "view", _, (str(viewed),):
            return _has_inverse(graph, viewed)
    return _is_away_from_zero(graph, operand)


def _is_away_from_zero(graph: Graph, operand: Operand) -> bool:
    """Return whether the value is certainly at least SMALLEST, or NaN. Adding a value that is not negative keeps this
    property."""
    if not isinstance(operand, str):
        return is_number(operand) and operand >= SMALLEST
    node = graph[operand]
    match node.kind, node.function, node.inputs:
        case "map", "maximum", parts:
            return any(_is_away_from_zero(graph, each) for each in parts)
        case "map", "add", parts if all(never_negative(graph, each) for each in parts):
            return any(_is_away_from_zero(graph, each) for each in parts)
    return is_one_at_least(operand, graph)


@node_rule(
    "inverse for many",
    when="elements are divided by a value that many of them share and that cannot be subnormal",
    saves="a division per element, at the cost of a multiplication",
)
def inverse_for_many(site: Site) -> Operand | None:
    node, b = site.node, site.builder
    if (node.kind, node.function, node.dtype) != ("map", "div", "float32"):
        return None
    divided, divisor = node.inputs
    if not isinstance(divisor, str) or b.nodes[divisor].size * MANY > node.size:
        return None
    if b.dtype(divisor) != "float32" or not _has_inverse(site.graph, divisor):
        return None
    return b.map("mul", divided, b.map("div", 1.0, divisor))
