"""Tables of Triton expressions for scalar functions, reductions and scans.

Triton's own exp and division are the hardware's approximations. If their error would grow with the argument, kforge has
a function of its own, which is written once before the kernels.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.rewrite.operators.exponentials import is_from_the_largest, is_one_at_least

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kforge.smith.ir.graph import Graph, Node

_NAN = "propagate_nan=tl.PropagateNan.ALL"

MAPS = MappingProxyType(
    {
        "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
        "abs": "tl.abs({0})", "sqrt": "tl.sqrt_rn({0})", "rsqrt": "1.0 / tl.sqrt_rn({0})",
        "maximum": f"tl.maximum({{0}}, {{1}}, {_NAN})", "minimum": f"tl.minimum({{0}}, {{1}}, {_NAN})",
        "exp": "exp_of({0})", "log": "tl.log({0})", "expm1": "expm1_of({0})", "log1p": "log1p_of({0})",
        "tanh": "tanh_of({0})", "erf": "tl.erf({0})", "sigmoid": "1.0 / (1.0 + exp_of(-{0}))",
        "floor": "tl.floor({0})", "ceil": "tl.ceil({0})",
        "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}", "eq": "{0} == {1}",
        "ne": "{0} != {1}", "and": "{0} & {1}", "or": "{0} | {1}", "not": "{0} == 0",
        "where": "tl.where({0}, {1}, {2})", "float": "({0}).to(tl.float32)",
        "piece": "{0}", "coarse": "({0} + 2048.0) - 2048.0", "fine": "{0} - (({0} + 2048.0) - 2048.0)",
    }
)  # fmt: skip
"""Expressions of maps. Operands are names or numbers, so they need no brackets; negative numbers come with brackets."""

EXP_FROM_THE_LARGEST = "tl.exp({0})"
"""exp for arguments of at most zero, as in a softmax, from which the maximum was subtracted.

The hardware's relative error grows with the size of the argument, but the result shrinks faster. Compared with the
largest result of the row, which is 1, the error stays in the last bits. This exp takes a fifth of the instructions of
`exp_of`.
"""

OVER_THEIR_SUM = "{0} * (1.0 / {1})"
"""Division by a sum of exponentials, as in a softmax. The sum is at least 1, so its inverse is finite.

The inverse is computed once per row. The hardware's division takes nine instructions per element and is no more exact.
"""


def map_text(node: Node, graph: Graph) -> str:
    """Return the expression of a map node, with {0}, {1} … for its operands."""
    if node.function == "exp" and is_from_the_largest(node, graph):
        return EXP_FROM_THE_LARGEST
    if node.function == "div" and is_one_at_least(node.inputs[1], graph):
        return OVER_THEIR_SUM
    return MAPS[node.function]


@dataclass(frozen=True)
class ReductionText:
    """The Triton expressions of a reduction."""

    start: str
    """The result of reducing no elements. Masked elements have this value, too."""
    combine: str
    """Expression that combines two values {0} and {1}."""
    along: str
    """Expression that reduces a block {0} along its axis {1}. The axis stays, with size one."""


REDUCTIONS = MappingProxyType(
    {
        "sum": ReductionText("0.0", "{0} + {1}", "tl.sum({0}, axis={1}, keep_dims=True)"),
        "prod": ReductionText("1.0", "{0} * {1}", "tl.reduce({0}, {1}, times, keep_dims=True)"),
        "max": ReductionText('float("-inf")', "tl.maximum({0}, {1})", "tl.max({0}, axis={1}, keep_dims=True)"),
        "min": ReductionText('float("inf")', "tl.minimum({0}, {1})", "tl.min({0}, axis={1}, keep_dims=True)"),
    }
)


@dataclass(frozen=True)
class Scan:
    """The expressions of a scan. Unlike the expressions of a reduction, they keep NaN."""

    combine: str
    along: str
    running: str
    """Expression that scans a block {0} along its axis {1}. {2} is the option for a reversed scan."""


SCANS = MappingProxyType(
    {
        "sum": Scan(REDUCTIONS["sum"].combine, REDUCTIONS["sum"].along, "tl.cumsum({0}, axis={1}{2})"),
        "prod": Scan(REDUCTIONS["prod"].combine, REDUCTIONS["prod"].along, "tl.cumprod({0}, axis={1}{2})"),
        **{
            function: Scan(
                f"{name}({{0}}, {{1}})",
                f"tl.reduce({{0}}, {{1}}, {name}, keep_dims=True)",
                f"tl.associative_scan({{0}}, {{1}}, {name}{{2}})",
            )
            for function, name in (("max", "larger"), ("min", "smaller"))
        },
    }
)

_EXP = """
@triton.jit
def exp_of(x):
    # exp(x) = 2^whole * 2^rest with whole + rest = x * log2(e). Fused multiply-adds make `rest` accurate to its
    # last bit. The low bits of `shifted` are the integer `whole`.
    shifted = tl.minimum(tl.maximum(x * 1.44269504, -126.0), 127.0) + 12582912.0
    whole = shifted - 12582912.0
    rest = tl.fma(x, 1.92596303e-8, tl.fma(x, 1.44269504, -whole))
    power = ((shifted.to(tl.int32, bitcast=True) << 23) + 0x3F800000).to(tl.float32, bitcast=True)
    return tl.exp2(rest) * power
"""

_EXPM1 = """
@triton.jit
def expm1_of(x):
    # Near zero, exp(x) - 1 would lose digits by cancellation, so a series is used there.
    near = tl.where(tl.abs(x) < 0.5, x, 0.0)
    series = 1.0 + near * 0.125
    series = 1.0 + near * series * 0.142857143
    series = 1.0 + near * series * 0.166666667
    series = 1.0 + near * series * 0.2
    series = 1.0 + near * series * 0.25
    series = 1.0 + near * series * 0.333333333
    series = 1.0 + near * series * 0.5
    return tl.where(tl.abs(x) < 0.5, near * series, exp_of(x) - 1.0)
"""

_LOG1P = """
@triton.jit
def log1p_of(x):
    # 1 + x = 2^e (1 + m), and log(1 + m) is a polynomial in m. No digits are lost by cancellation. Here, `e` is the
    # exponent in the bits of a float32 number.
    e = ((1.0 + x).to(tl.int32, bitcast=True) - 0x3F400000) & -0x800000
    scale = (0x40800000 - e).to(tl.float32, bitcast=True)
    m = (x.to(tl.int32, bitcast=True) - e).to(tl.float32, bitcast=True) + tl.fma(scale, 0.25, -1.0)
    square = m * m
    odd = tl.fma(tl.fma(square, 0.105529785, 0.144911006), square, 0.199886635)
    even = tl.fma(tl.fma(square, -0.0454559326, -0.132279143), square, -0.166416913)
    series = tl.fma(odd, m, tl.fma(even, square, -0.250001878))
    series = tl.fma(tl.fma(series, m, 0.33333528), m, -0.5)
    value = tl.fma(e.to(tl.float32), 8.26295829e-8, tl.fma(series, square, m))
    value = tl.where(x < float("inf"), value, x)
    return tl.where(x > -1.0, value, tl.where(x == -1.0, float("-inf"), float("nan")))
"""

_TANH = """
@triton.jit
def tanh_of(x):
    # Computed from exp(-2 |x|) - 1, which does not overflow and loses no digits by cancellation.
    below = expm1_of(-2.0 * tl.abs(x))
    size = -below / (2.0 + below)
    return tl.where(x < 0.0, -size, size)
"""

_TIMES = """
@triton.jit
def times(x, y):
    return x * y
"""

_EXTREME = """
@triton.jit
def {0}(x, y):
    return tl.{1}(x, y, propagate_nan=tl.PropagateNan.ALL)
"""

_BEFORE = """
@triton.jit
def {0}(all1, before1, all2, before2):
    # Combines two neighbouring ranges of elements. For each range, `all` is the result for all of its elements, and
    # `before` the result without its last element.
    return {1}, {2}
"""


def before(function: str) -> str:
    """Return the name of the helper function that combines two parts of an exclusive scan."""
    return f"{function}_before"


_TEXTS = MappingProxyType(
    {
        "exp_of": _EXP, "expm1_of": _EXPM1, "log1p_of": _LOG1P, "tanh_of": _TANH, "times": _TIMES,
        "larger": _EXTREME.format("larger", "maximum"), "smaller": _EXTREME.format("smaller", "minimum"),
        **{
            before(function): _BEFORE.format(
                before(function), scan.combine.format("all1", "all2"), scan.combine.format("all1", "before2")
            )
            for function, scan in SCANS.items()
        },
    }
)  # fmt: skip
_NEEDS = MappingProxyType(
    {
        "expm1_of": ("exp_of",),
        "tanh_of": ("exp_of", "expm1_of"),
        before("max"): ("larger",),
        before("min"): ("smaller",),
    }
)


def used_in(text: str) -> tuple[str, ...]:
    """Return the names of the helper functions that a kernel's text calls."""
    words = set(re.findall(r"\w+", re.sub("#.*", "", text)))
    return tuple(name for name in _TEXTS if name in words)


def definitions(names: Iterable[str]) -> list[str]:
    """Return the source of the named helper functions and of all that they call, each once."""
    wanted = {needed for name in names for needed in (*_NEEDS.get(name, ()), name)}
    return [text.strip("\n") for name, text in _TEXTS.items() if name in wanted]


def number(value: float) -> str:
    """Return a number as Triton source."""
    if math.isinf(value) or math.isnan(value):
        return f'float("{value}")'
    text = repr(float(value))
    return f"({text})" if value < 0 else text
