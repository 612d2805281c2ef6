"""The scalar functions that `map`, `reduce` and `scan` nodes apply: their meaning in torch and their rough cost.

How a function is spelled is a table of each language (`languages/`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Function:
    torch: str
    """A function of the module torch."""
    cost: int = 1
    """A rough number of operations, by which kernels decide whether to keep a value or compute it again."""


MAPS = MappingProxyType(
    {
        "add": Function("add"),
        "sub": Function("sub"),
        "mul": Function("mul"),
        "div": Function("div", 4),
        "neg": Function("neg"),
        "abs": Function("abs"),
        "sqrt": Function("sqrt", 6),
        "rsqrt": Function("rsqrt", 8),
        "maximum": Function("maximum"),
        "minimum": Function("minimum"),
        "exp": Function("exp", 16),
        "log": Function("log", 20),
        "expm1": Function("expm1", 30),
        "log1p": Function("log1p", 36),
        "tanh": Function("tanh", 24),
        "erf": Function("erf", 32),
        "sigmoid": Function("sigmoid", 22),
        "floor": Function("floor", 2),
        "ceil": Function("ceil", 2),
        "lt": Function("lt"),
        "le": Function("le"),
        "gt": Function("gt"),
        "ge": Function("ge"),
        "eq": Function("eq"),
        "ne": Function("ne"),
        "and": Function("logical_and"),
        "or": Function("logical_or"),
        "not": Function("logical_not"),
        "where": Function("where"),
        "float": Function(""),
        "piece": Function("clone", 0),
        # split a number up to one into a multiple of 2^-12 and the rest, without rounding
        "coarse": Function("clone", 2),
        "fine": Function("zeros_like", 3),
    }
)


@dataclass(frozen=True)
class Reduction:
    torch: str
    nothing: float
    """The value of an empty reduction."""
    running: str
    """torch's name of the scan."""


REDUCTIONS = MappingProxyType(
    {
        "sum": Reduction("sum", 0.0, "cumsum"),
        "prod": Reduction("prod", 1.0, "cumprod"),
        "max": Reduction("amax", -math.inf, "cummax"),
        "min": Reduction("amin", math.inf, "cummin"),
    }
)
