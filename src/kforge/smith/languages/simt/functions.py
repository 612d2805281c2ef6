"""Expressions for the scalar functions of maps and reductions, in any dialect.

If the language has a function of its own (`Dialect.calls`), that function is called. Otherwise the function is one of
<kforge/math.h>, which `kforge.inline` provides in every language.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.inline.headers import HEADER
from kforge.smith.ir.functions import REDUCTIONS
from kforge.smith.languages.simt.code import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.smith.ir.graph import Node, Operand
    from kforge.smith.languages.simt.code import Code
    from kforge.smith.languages.simt.dialect import Dialect

INCLUDE = f"#include <{HEADER}>"
"""Line that includes the header, for sources that call its functions."""
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
    """Return the expression that applies a function to operands. They have already been converted to the kind that it
    needs."""
    if (symbol := _INFIX.get(function)) is not None:
        return f"({given[0]} {symbol} {given[1]})"
    if (plain := _PLAIN.get(function)) is not None:
        return plain.format(*given)
    if (native := code.dialect.calls.get(function)) is not None:
        return f"{native}({', '.join(given)})"
    if function == "rsqrt":
        return f"(1.0f / {expression(code, 'sqrt', given)})"
    code.kernel.helpers[INCLUDE] = None
    return f"{code.dialect.block}{function}({', '.join(given)})"


def operand(value: Operand, read: Callable[[str], Value]) -> Value | float:
    """Return an operand: a number as it is, or the value of the named node, which `read` returns."""
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
