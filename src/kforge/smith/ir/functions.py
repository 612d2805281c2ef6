"""The scalar functions that `map` and `reduce` nodes apply: torch's function, and the expression in a C-like language.

`c` is an expression in which {0}, {1} … stand for the operands. A name in `helper` is one of the language's
definitions, written out where it is used. `cost` is a rough number of operations, by which kernels decide whether to
keep a value or compute it again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Function:
    c: str
    torch: str
    """A function of the module torch."""
    cost: int = 1
    helper: str = ""


def _infix(symbol: str, torch: str, cost: int = 1) -> Function:
    return Function(f"({{0}} {symbol} {{1}})", torch, cost)


def _helped(name: str, cost: int, torch: str = "") -> Function:
    return Function(f"{name}_of({{0}})", torch or name, cost, name)


MAPS = MappingProxyType(
    {
        "add": _infix("+", "add"),
        "sub": _infix("-", "sub"),
        "mul": _infix("*", "mul"),
        "div": _infix("/", "div", 4),
        "neg": Function("(-{0})", "neg"),
        "abs": Function("std::fabs({0})", "abs"),
        "sqrt": Function("std::sqrt({0})", "sqrt", 6),
        "rsqrt": Function("(1.0f / std::sqrt({0}))", "rsqrt", 8),
        "maximum": Function("maximum_of({0}, {1})", "maximum", 1, "maximum"),
        "minimum": Function("minimum_of({0}, {1})", "minimum", 1, "minimum"),
        "exp": _helped("exp", 16),
        "log": _helped("log", 20),
        "expm1": _helped("expm1", 30),
        "log1p": _helped("log1p", 36),
        "tanh": _helped("tanh", 24),
        "erf": _helped("erf", 32),
        "sigmoid": _helped("sigmoid", 22),
        "floor": Function("std::floor({0})", "floor", 2),
        "ceil": Function("std::ceil({0})", "ceil", 2),
        "lt": _infix("<", "lt"),
        "le": _infix("<=", "le"),
        "gt": _infix(">", "gt"),
        "ge": _infix(">=", "ge"),
        "eq": _infix("==", "eq"),
        "ne": _infix("!=", "ne"),
        "and": _infix("&&", "logical_and"),
        "or": _infix("||", "logical_or"),
        "not": Function("(!{0})", "logical_not"),
        "where": Function("({0} ? {1} : {2})", "where"),
        "float": Function("static_cast<float>({0})", ""),
        "piece": Function("{0}", "clone", 0),
        # split a number up to one into a multiple of 2^-12 and the rest, without rounding
        "coarse": Function("(({0} + 2048.0f) - 2048.0f)", "clone", 2),
        "fine": Function("({0} - (({0} + 2048.0f) - 2048.0f))", "zeros_like", 3),
    }
)


@dataclass(frozen=True)
class Reduction:
    torch: str
    nothing: float
    """The value of an empty reduction."""
    combine: str
    """An expression of the value so far {0} and one more {1}."""
    openmp: str
    """The name of the reduction in OpenMP."""
    running: str
    """torch's name of the scan."""
    helper: str = ""

    @property
    def start(self) -> str:
        return {math.inf: "INFINITY", -math.inf: "-INFINITY"}.get(self.nothing, f"{self.nothing}f")


REDUCTIONS = MappingProxyType(
    {
        "sum": Reduction("sum", 0.0, "{0} + {1}", "+", "cumsum"),
        "prod": Reduction("prod", 1.0, "{0} * {1}", "*", "cumprod"),
        "max": Reduction("amax", -math.inf, "larger({0}, {1})", "max", "cummax", "larger"),
        "min": Reduction("amin", math.inf, "smaller({0}, {1})", "min", "cummin", "smaller"),
    }
)
