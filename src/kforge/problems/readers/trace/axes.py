"""Solves the axes of a definition: constants, variables that a workload sets, and expressions of other axes."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

from kforge.errors import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LARGEST = 2**63 - 1
"""Largest value of an axis: torch's sizes are signed 64-bit integers."""
MOST_POWER = 64
"""Largest exponent. A larger one would make a number that does not fit into 64 bits, and that could fill the memory."""
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class _NotOverAxes(Exception):
    """An expression is not arithmetic of whole numbers and axes, or its value is not a whole number of valid size."""


def solve(axes: Mapping[str, Any], values: Mapping[str, Any], origin: str) -> dict[str, int]:
    """Return the value of every axis of a definition. `values` are those of the variable axes.

    Raises ProblemError if one has no value, if an expression is wrong or refers to itself, or if a value is no integer
    of 0 or more. `origin` names the definition in errors.
    """
    solved: dict[str, int] = {}
    begun: set[str] = set()

    def value(name: str) -> int:
        if name in solved:
            return solved[name]
        if name in begun:
            raise ProblemError(f"{origin}: axis {name} is defined by itself")
        begun.add(name)
        axis = axes.get(name)
        match axis if isinstance(axis, dict) else None:
            case {"type": "const", "value": given}:
                found = given
            case {"type": "var"}:
                if name not in values:
                    raise ProblemError(f"{origin}: the workload gives no value to the axis {name}")
                found = values[name]
            case {"type": "expr", "expression": str(expression)}:
                try:
                    found = _evaluated(_parsed(expression, origin), value)
                except _NotOverAxes as error:
                    raise ProblemError(f"{origin}: axis {name} = {expression}: {error}") from None
            case _:
                raise ProblemError(f"{origin}: there is no axis {name}, or it is not const, var or expr")
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= LARGEST:
            raise ProblemError(f"{origin}: axis {name} has the value {found!r}, which is no size")
        solved[name] = found
        return found

    for name in axes:
        value(name)
    return solved


def check(constraints: list[str], solved: Mapping[str, int], origin: str) -> tuple[str, ...]:
    """Check constraints such as `H == K * 4`. Returns those that were not checked, because they depend on more than
    axes.

    Raises ProblemError if a constraint does not hold or is not Python.
    """
    open_ones: list[str] = []
    for constraint in constraints:
        try:
            holds = _evaluated(_parsed(constraint, origin), solved.__getitem__)
        except (_NotOverAxes, KeyError):
            open_ones.append(constraint)
            continue
        if holds is not True:
            raise ProblemError(f"{origin}: the workload breaks the constraint {constraint}")
    return tuple(open_ones)


def _parsed(expression: str, origin: str) -> ast.expr:
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ProblemError(f"{origin}: {expression!r} is not an expression") from None


def _evaluated(node: ast.expr, value: Callable[[str], int]) -> Any:
    """Return the value of an expression. Raises _NotOverAxes for anything but arithmetic and comparisons of axes."""
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return value(name)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            inner = _evaluated(operand, value)
            return -inner if isinstance(sign, ast.USub) else inner
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(op, _evaluated(left, value), _evaluated(right, value))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluated(left, value), _evaluated(right, value))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_evaluated(part, value) for part in parts)
    raise _NotOverAxes("only +, -, *, /, //, %, ** of axes and whole numbers are read")


def _combined(op: ast.operator, left: int, right: int) -> int:
    """Return the result of one operation on whole numbers. Raises _NotOverAxes if the result is no
    whole number or too large, and for a division by zero."""
    if isinstance(op, ast.Div):
        if right == 0 or left % right:
            raise _NotOverAxes(f"{left} / {right} is not a whole number")
        return left // right
    if isinstance(op, ast.Pow):
        if not 0 <= right <= MOST_POWER or abs(left) > LARGEST:
            raise _NotOverAxes(f"{left} ** {right} is too large")
        return int(left**right)
    if type(op) not in _OPERATORS or (right == 0 and isinstance(op, ast.FloorDiv | ast.Mod)):
        raise _NotOverAxes("it divides by zero, or uses an operator that is not read")
    return int(_OPERATORS[type(op)](left, right))
