"""Tables of the C++ expressions for the scalar functions and reductions of `ir/functions.py`.

{0}, {1} … stand for the operands. `helper` names a function of `definitions.py` that the expression calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class MapText:
    """The C++ expression of a scalar function, and the helper that it calls. `helper` is empty if it calls none."""

    expression: str
    helper: str = ""


def _infix(symbol: str) -> MapText:
    return MapText(f"({{0}} {symbol} {{1}})")


def _helped(name: str) -> MapText:
    return MapText(f"kforge::{name}({{0}})", name)


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&&", "or": "||",
}  # fmt: skip

MAPS = MappingProxyType(
    {
        **{name: _infix(symbol) for name, symbol in _INFIX.items()},
        **{name: _helped(name) for name in ("exp", "log", "expm1", "log1p", "tanh", "erf", "sigmoid")},
        "neg": MapText("(-{0})"),
        "abs": MapText("std::fabs({0})"),
        "sqrt": MapText("std::sqrt({0})"),
        "rsqrt": MapText("(1.0f / std::sqrt({0}))"),
        "maximum": MapText("kforge::maximum({0}, {1})", "maximum"),
        "minimum": MapText("kforge::minimum({0}, {1})", "minimum"),
        "floor": MapText("std::floor({0})"),
        "ceil": MapText("std::ceil({0})"),
        "not": MapText("(!{0})"),
        "where": MapText("({0} ? {1} : {2})"),
        "float": MapText("static_cast<float>({0})"),
        "piece": MapText("{0}"),
        "coarse": MapText("(({0} + 2048.0f) - 2048.0f)"),
        "fine": MapText("({0} - (({0} + 2048.0f) - 2048.0f))"),
    }
)


@dataclass(frozen=True)
class ReductionText:
    """The C++ texts of a reduction. `helper` is empty if `combine` calls no helper."""

    start: str
    """C++ expression for the result of reducing no elements."""
    combine: str
    """C++ expression that combines the result so far, {0}, with one more element, {1}."""
    openmp: str
    """The reduction's name in OpenMP's `reduction` clause."""
    helper: str = ""


REDUCTIONS = MappingProxyType(
    {
        "sum": ReductionText("0.0f", "{0} + {1}", "+"),
        "prod": ReductionText("1.0f", "{0} * {1}", "*"),
        "max": ReductionText("-INFINITY", "kforge::larger({0}, {1})", "max", "larger"),
        "min": ReductionText("INFINITY", "kforge::smaller({0}, {1})", "min", "smaller"),
    }
)
