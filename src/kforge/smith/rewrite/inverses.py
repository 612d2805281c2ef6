"""Replaces divisions by a value that many elements share: one inverse, and a product for each element.

The result is exact to an ulp where the inverse is finite. The inverse of a subnormal number is not, so a rule must know
that the divisor is not subnormal. Zero is allowed: both ways give the same infinities and NaN.
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
"""Least known bound of a divisor, well above the subnormal numbers, so that its inverse is finite."""
MANY = 4
"""Fewest elements that share a divisor for which a separate inverse pays."""


def _has_inverse(graph: Graph, operand: str) -> bool:
    """Return whether the way in which the value was computed shows that it is not between zero and SMALLEST."""
    node = graph[operand]
    match node.kind, node.function, node.inputs:
        case "map", "sqrt", _:  # the square root of the smallest number is 4e-23
            return True
        case "view", _, (str(viewed),):
            return _has_inverse(graph, viewed)
    return _is_away_from_zero(graph, operand)


def _is_away_from_zero(graph: Graph, operand: Operand) -> bool:
    """Whether the value is at least SMALLEST or NaN. Then its sum with a value that is not negative is so, too."""
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
    when="elements are divided by what many of them share, and no subnormal number can be",
    saves="a division an element, for a product",
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
