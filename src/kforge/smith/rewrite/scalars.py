"""Combines constants once, instead of for every element.

The rounding changes by about one unit in the last place. Rewrites that could change it more are left out: (x + a)*b is
not expanded, since x + a may be small while x*b is not; and very large constants are kept, since they may be there to
round.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.smith.rewrite.rule import is_number, node_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kforge.smith.ir.graph import Node, Operand
    from kforge.smith.rewrite.rule import Site

LARGEST_FACTOR = 1e30
"""A product of factors beyond this number, or below its inverse, is not combined: it might leave the range of
float32."""
LARGEST_SHIFT = 1e6
"""Largest shift that is combined. A larger one may be there to round, as in (x + 2**23) - 2**23."""

_COMPUTED: Mapping[str, Callable[..., float]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "neg": lambda a: -a, "abs": abs, "maximum": max, "minimum": min, "sqrt": math.sqrt, "exp": math.exp,
    "log": math.log, "rsqrt": lambda a: 1 / math.sqrt(a), "tanh": math.tanh,
}  # fmt: skip


@node_rule("constant folding", when="every operand of a map is a number", saves="the operation")
def constant_folding(site: Site) -> Operand | None:
    node = site.node
    if node.kind != "map" or node.function not in _COMPUTED or not all(map(is_number, node.inputs)):
        return None
    try:
        value = float(_COMPUTED[node.function](*node.inputs))
    except (ArithmeticError, ValueError):
        return None
    return value if math.isfinite(value) and abs(value) < LARGEST_FACTOR else None


def step(node: Node) -> tuple[str, float, float] | None:
    """Return `(x, factor, shift)` if the map computes x*factor + shift with constants; otherwise None. Factor or shift
    is neutral, except for a - x."""
    match node.function, node.inputs:
        case "neg", (str(x),):
            return x, -1.0, 0.0
        case "mul", ((str(x), int(c) | float(c)) | (int(c) | float(c), str(x))):
            return x, float(c), 0.0
        case "div", (str(x), int(c) | float(c)) if c != 0:
            return x, 1.0 / c, 0.0
        case "add", ((str(x), int(c) | float(c)) | (int(c) | float(c), str(x))):
            return x, 1.0, float(c)
        case "sub", (str(x), int(c) | float(c)):
            return x, 1.0, -float(c)
        case "sub", (int(c) | float(c), str(x)):
            return x, -1.0, float(c)
    return None


def _steps(site: Site) -> list[tuple[str, float, float]]:
    """Return the chain of maps with constants (see `step`) that ends in this node, innermost first. It begins after the
    last node that something else reads."""
    found: list[tuple[str, float, float]] = []
    node = site.node
    while node.kind == "map" and node.dtype == "float32" and (found == [] or site.alone(node.name)):
        one = step(node)
        if one is None:
            break
        found.append(one)
        node = site.graph[one[0]]
    return found[::-1]


@node_rule("chain of scalars", when="(x*a)*b, (x+a)+b, (x*a+b)*c, -(x*a) …", saves="all but two operations per element")
def chain_of_scalars(site: Site) -> Operand | None:
    steps = _steps(site)
    base, factor, shift, taken = "", 1.0, 0.0, 0
    for x, c, d in steps:
        keeps_size = abs(c) == 1
        if not base or (abs(factor) == 1 and shift != 0 and not keeps_size):  # a shift is not multiplied out
            base, factor, shift, taken = x, 1.0, 0.0, 0
        factor, shift, taken = factor * c, shift * c + d, taken + 1
    if not base or site.graph[base].dtype != "float32" or not _harmless(steps, factor, shift):
        return None
    if shift and factor == -1:
        written = ["sub"]
    else:
        written = ["neg"] * (factor == -1) + ["mul"] * (abs(factor) != 1) + ["add"] * (shift != 0)
    if len(written) >= taken:
        return None
    result = base
    for function in written:
        match function:
            case "sub":
                result = site.builder.map("sub", shift, result)
            case "neg":
                result = site.builder.map("neg", result)
            case _:
                result = site.builder.map(function, result, factor if function == "mul" else shift)
    return result


def _harmless(steps: list[tuple[str, float, float]], factor: float, shift: float) -> bool:
    factors = [factor, *(c for _, c, _ in steps)]
    shifts = [shift, *(d for _, _, d in steps)]
    return all(1 / LARGEST_FACTOR < abs(c) < LARGEST_FACTOR for c in factors) and all(
        abs(d) <= LARGEST_SHIFT for d in shifts
    )


@node_rule("bound of a bound", when="max(max(x, a), b), min(min(x, a), b)", saves="one operation per element")
def bound_of_bound(site: Site) -> Operand | None:
    node, source = site.node, site.source()
    if node.kind != "map" or node.function not in ("maximum", "minimum") or source is None:
        return None
    if (source.kind, source.function) != ("map", node.function):
        return None
    x, inner, outer = source.inputs[0], source.inputs[1], node.inputs[1]
    if is_number(inner) and is_number(outer):
        tighter = max(inner, outer) if node.function == "maximum" else min(inner, outer)
        return source.name if tighter == inner else site.builder.map(node.function, x, tighter)
    return source.name if outer in source.inputs else None


SCALARS = (constant_folding, chain_of_scalars, bound_of_bound)
