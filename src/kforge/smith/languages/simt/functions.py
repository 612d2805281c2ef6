"""Expressions for the scalar functions of maps and reductions, in any dialect.

If the language has a function of its own (`Dialect.calls`), that function is called. Otherwise the function is written
out before the kernels, from the same polynomials in every dialect. They are kforge's own minimax fits, exact to the
last two or three bits.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.ir.functions import REDUCTIONS
from kforge.smith.languages.simt.code import Code, Value
from kforge.smith.languages.simt.dialect import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kforge.smith.ir.graph import Node, Operand
    from kforge.smith.languages.simt.dialect import Dialect

_INFIX = MappingProxyType(
    {
        "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
        "ne": "!=", "and": "&&", "or": "||",
    }
)  # fmt: skip
_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_TRUTHS = frozenset({"and", "or", "not"})
_PLAIN = MappingProxyType(
    {
        "neg": "(-{0})", "not": "(!{0})", "piece": "{0}", "float": "{0}",
        "coarse": "(({0} + 2048.0f) - 2048.0f)", "fine": "({0} - (({0} + 2048.0f) - 2048.0f))",
    }
)  # fmt: skip


def map_value(code: Code, node: Node, operands: Sequence[Value | float]) -> Value:
    """Return the value of a map node. Its operands are values of the kernel or plain numbers."""
    dialect, function = code.dialect, node.function
    kind = dialect.kind(node.dtype)
    if function in _TRUTHS:
        wanted = "bool"
    elif function in _COMPARISONS:
        kinds = [each.kind for each in operands if isinstance(each, Value)]
        numbers = ["bool" if isinstance(each, bool) else "float32" for each in operands if not isinstance(each, Value)]
        wanted = next((each for each in ("float32", "int64", "int32") if each in (*kinds, *numbers)), "bool")
    else:
        wanted = kind
    if function == "where":
        condition = _text(code, operands[0], "bool")
        return Value(dialect.select(condition, *(_text(code, each, kind) for each in operands[1:])), kind)
    given = [_text(code, each, wanted) for each in operands]
    return Value(expression(code, function, given), kind)


def _text(code: Code, operand: Value | float, kind: str) -> str:
    if isinstance(operand, Value):
        return code.converted(operand, kind)
    if kind == "bool":
        return "true" if operand else "false"
    return code.dialect.number(float(operand)) if kind == "float32" else str(int(operand))


def expression(code: Code, function: str, given: Sequence[str]) -> str:
    """Return the expression that applies a function to operands in float32 or bool."""
    if (symbol := _INFIX.get(function)) is not None:
        return f"({given[0]} {symbol} {given[1]})"
    if (plain := _PLAIN.get(function)) is not None:
        return plain.format(*given)
    if (native := code.dialect.calls.get(function)) is not None:
        return f"{native}({', '.join(given)})"
    if function == "rsqrt":
        return f"(1.0f / {expression(code, 'sqrt', given)})"
    code.kernel.helpers[function] = None
    return f"{function}_of({', '.join(given)})"


def operand(value: Operand, read: Callable[[str], Value]) -> Value | float:
    """Return the value of a node, by `read`, or a number as it is."""
    return read(value) if isinstance(value, str) else value


# --- reductions -----------------------------------------------------------------------------------------------------


def start(dialect: Dialect, function: str) -> str:
    """Return the result of reducing no elements, as an expression."""
    return dialect.number(REDUCTIONS[function].nothing)


def combined(code: Code, function: str, one: str, other: str) -> str:
    """Return the expression that combines two partial results of a reduction."""
    symbols = {"sum": "+", "prod": "*"}
    if function in symbols:
        return f"{one} {symbols[function]} {other}"
    return f"{code.dialect.calls[function]}({one}, {other})"


def scanned(code: Code, function: str, one: str, other: str) -> str:
    """Return the expression that combines two partial results of a scan. Unlike `combined`, it keeps NaN in maximum and
    minimum."""
    if function in ("sum", "prod"):
        return combined(code, function, one, other)
    return expression(code, "maximum" if function == "max" else "minimum", [one, other])


# --- functions written out ------------------------------------------------------------------------------------------


def _polynomial(code: Code, name: str, x: str, factors: Sequence[float]) -> None:
    """Write statements that evaluate a polynomial of x by Horner's rule. `factors` begin with the highest power."""
    code.var(name, "float32", code.dialect.number(factors[0]))
    for factor in factors[1:]:
        code.assign(name, code.dialect.multiply_add(name, x, code.dialect.number(factor)))


def _maximum(code: Code) -> str:
    wins = f"x > y || {code.dialect.is_nan('x')}"
    return code.dialect.select(f"({wins})", "x", "y")


def _minimum(code: Code) -> str:
    wins = f"x < y || {code.dialect.is_nan('x')}"
    return code.dialect.select(f"({wins})", "x", "y")


def _exp(code: Code) -> str:
    """Write exp(x) as 2^k exp(r) with r in [-ln 2 / 2, ln 2 / 2]: exp(r) is a polynomial, and k goes into the exponent
    bits."""
    d = code.dialect
    code.let("inside", "float32", f"{d.calls['min']}({d.calls['max']}(x, (-86.6f)), 89.0f)")
    code.let("k", "float32", f"{d.calls['floor']}(inside * 1.44269504f + 0.5f)")
    code.let("r", "float32", "(inside - k * 0.693359375f) + k * 2.12194440e-4f")
    _polynomial(code, "p", "r", (1.395605185e-3, 8.375128581e-3, 4.166608367e-2, 1.666641548e-1, 5.000000168e-1,
                                 1.000000038, 1.0))  # fmt: skip
    code.let("power", "float32", d.from_bits(f"(({d.cast('int32', 'k')} + 126) << 23u)"))
    code.let("value", "float32", "p * power * 2.0f")
    code.let("bounded", "float32", d.select("x < (-86.6f)", "0.0f", "value"))
    code.let("open", "float32", d.select("x > 88.73f", d.number(math.inf), "bounded"))
    return d.select(d.is_nan("x"), "x", "open")


def _log(code: Code) -> str:
    """Write log(x) as k ln 2 + log(m) with m in [sqrt(1/2), sqrt(2)]."""
    d = code.dialect
    code.let("tiny", "bool", "x < 1.17549435e-38f")
    code.let("scaled", "float32", d.select("tiny", "x * 8388608.0f", "x"))
    code.let("shift", "float32", d.select("tiny", "23.0f", "0.0f"))
    code.let("whole", "int32", d.bits("scaled"))
    code.let("k", "int32", "(whole - 0x3f3504f3) >> 23u")
    code.let("f", "float32", f"{d.from_bits('whole - k * 8388608')} - 1.0f")
    code.let("exponent", "float32", f"{d.cast('float32', 'k')} - shift")
    _polynomial(code, "p", "f", (-8.064553267e-2, 1.291782159e-1, -1.307256941e-1, 1.417346258e-1, -1.662891941e-1,
                                 2.000269516e-1, -2.500075123e-1, 3.333331295e-1, -4.999999773e-1))  # fmt: skip
    code.let("value", "float32", "exponent * 0.693359375f + (f + (f * f * p - exponent * 2.12194440e-4f))")
    code.let("high", "float32", d.select("x > 3.4028234e38f", "x", "value"))
    code.let("low", "float32", d.select("x == 0.0f", d.number(-math.inf), "high"))
    return d.select("x >= 0.0f", "low", d.number(math.nan))


def _expm1(code: Code) -> str:
    """Write exp(x) - 1. Near zero a polynomial replaces the subtraction, which would lose digits."""
    d = code.dialect
    _polynomial(code, "p", "x", (2.495704588e-5, 1.996218508e-4, 1.388860794e-3, 8.333182044e-3, 4.166666836e-2,
                                 1.666666714e-1, 0.5))  # fmt: skip
    code.let("beyond", "float32", f"{expression(code, 'exp', ['x'])} - 1.0f")
    return d.select(f"{expression(code, 'abs', ['x'])} < 0.5f", "x + x * x * p", "beyond")


def _log1p(code: Code) -> str:
    """Write log(1 + x), and correct it for the digits that the addition 1 + x loses."""
    d = code.dialect
    code.let("finite", "float32", d.select("x > 3e38f", "3e38f", "x"))
    code.let("total", "float32", "1.0f + finite")
    code.let("divisor", "float32", d.select("total > 0.0f", "total", "1.0f"))
    code.let("lost", "float32", "finite - (total - 1.0f)")
    return f"{expression(code, 'log', ['(1.0f + x)'])} + lost / divisor"


def _bounded(code: Code, bound: str) -> str:
    """Return the expression x * p / q for |x| up to a bound, and exactly 1 or -1 beyond it.

    It must be exact there, because the caller's formula may multiply 1 minus this value by a large number.
    """
    d = code.dialect
    code.let("one", "float32", d.select("x < 0.0f", "(-1.0f)", "1.0f"))
    return d.select(f"{expression(code, 'abs', ['x'])} > {bound}", "one", "(x * p / q)")


def _tanh(code: Code) -> str:
    """Write tanh(x) as x times a quotient of polynomials of x * x, for |x| up to 8.9. Beyond, tanh is ±1 in single
    precision."""
    code.let("s", "float32", f"{code.dialect.calls['min']}(x * x, 81.0f)")
    _polynomial(code, "p", "s", (-8.488745830e-14, 5.277961711e-11, -2.022525198e-8, 1.115431434e-5, 3.103956763e-3,
                                 1.308401058e-1, 9.999999934e-1))  # fmt: skip
    _polynomial(code, "q", "s", (2.546146040e-4, 2.449518054e-2, 4.641733768e-1, 1.0))
    return _bounded(code, "8.9f")


def _erf(code: Code) -> str:
    """Write erf(x) as x times a quotient of polynomials of x * x, for |x| up to 3.88. Beyond, erf is ±1 in single
    precision."""
    code.let("s", "float32", f"{code.dialect.calls['min']}(x * x, 15.21f)")
    _polynomial(code, "p", "s", (-1.267699960e-8, 4.586487548e-6, 3.758999959e-4, 3.835005416e-3, 5.422104958e-2,
                                 1.851063582e-1, 1.128379169))  # fmt: skip
    _polynomial(code, "q", "s", (6.218574781e-5, 1.299645101e-3, 1.541975709e-2, 1.138449010e-1, 4.973796429e-1,
                                 1.0))  # fmt: skip
    return _bounded(code, "3.88f")


def _sigmoid(code: Code) -> str:
    return f"1.0f / (1.0f + {expression(code, 'exp', ['(-x)'])})"


_WRITTEN = MappingProxyType(
    {
        "maximum": (_maximum, 2), "minimum": (_minimum, 2), "exp": (_exp, 1), "log": (_log, 1), "expm1": (_expm1, 1),
        "log1p": (_log1p, 1), "tanh": (_tanh, 1), "erf": (_erf, 1), "sigmoid": (_sigmoid, 1),
    }
)  # fmt: skip


def definitions(dialect: Dialect, names: Iterable[str]) -> list[str]:
    """Return the definitions of the named functions and of all functions that they call, each once and before its first
    use."""
    texts: dict[str, str] = {}

    def define(name: str) -> None:
        if name in texts:
            return
        body = Kernel(name, "", 1, 1)
        code = Code(dialect, body)
        build, count = _WRITTEN[name]
        result = build(code)
        for needed in body.helpers:
            define(needed)
        parameters = [("float32", each) for each in ("x", "y")[:count]]
        texts[name] = dialect.function(f"{name}_of", parameters, "float32", [*body.lines, f"    return {result};"])

    for name in dict.fromkeys(names):
        define(name)
    return list(texts.values())


def title(nodes: Iterable[Node], sizes: Sequence[int]) -> str:
    """Return the comment above a kernel: the operators that it computes, and its sizes."""
    origins = list(dict.fromkeys(node.origin for node in nodes if node.origin))
    return f"{', '.join(origins) or 'maps'}: {' x '.join(map(str, sizes)) or '1'}"
