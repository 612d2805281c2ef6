"""Tables of the scalar functions that `map`, `reduce` and `scan` nodes apply: torch's function of the same meaning, and
a rough cost.

How a function is written in a target language is in that language's own table (`languages/`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Function:
    """A scalar function of a `map` node."""

    torch: str
    """Name of the function in the module torch that computes the same. Empty for a conversion to float32."""
    cost: int = 1
    """Rough number of operations per element. Kernels use it to decide whether to store a value or to compute it
    again."""


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
        # `coarse` and `fine` split a number of magnitude up to 1 exactly: a multiple of 2^-12, and the remainder
        "coarse": Function("clone", 2),
        "fine": Function("zeros_like", 3),
    }
)


@dataclass(frozen=True)
class Reduction:
    """An operation of `reduce` and `scan` nodes. `torch` is the name of torch's function for the reduction."""

    torch: str
    nothing: float
    """The result of reducing no elements: the neutral value."""
    running: str
    """Name of torch's function for the scan with this operation."""


REDUCTIONS = MappingProxyType(
    {
        "sum": Reduction("sum", 0.0, "cumsum"),
        "prod": Reduction("prod", 1.0, "cumprod"),
        "max": Reduction("amax", -math.inf, "cummax"),
        "min": Reduction("amin", math.inf, "cummin"),
    }
)
