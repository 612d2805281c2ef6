"""Writes argmax and argmin for the SIMT languages: the index of the largest or smallest element along an axis.

As in torch, the first NaN comes before every number. Its position is counted from the end of the row while threads
compare positions: such a number is negative, and so comes before the position of an infinity. A NaN is found by its
bits if the compiler may assume that no number is a NaN (`Dialect.is_nan`), and no comparison has a NaN as an operand.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from kforge.smith.ir.graph import Ref
from kforge.smith.ir.windows import around
from kforge.smith.languages.simt.code import Code, Value, all_of
from kforge.smith.languages.simt.dialect import GROUP_INDEX, Kernel
from kforge.smith.languages.simt.teams import first_position, reduced, team_for

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.simt.dialect import Dialect
    from kforge.smith.languages.simt.plan import SimtPlan


def kernel(
    name: str, node: Node, context: Context, plan: SimtPlan, dialect: Dialect
) -> tuple[Kernel, dict[str, str]] | None:
    """Return the kernel of an argmax or argmin call, and the argument for each parameter. None for other calls."""
    packet = node.function.removeprefix("aten.").partition(".")[0]
    positional, named = node.arguments if node.kind == "call" else ((), {})
    if packet not in ("argmax", "argmin") or named or not isinstance(positional[0], Ref) or not node.size:
        return None
    source = context.graph[positional[0].name]
    axis = positional[1] if len(positional) > 1 else None
    outer, length, lanes = (1, math.prod(source.shape), 1) if axis is None else around(source.shape, axis)
    if source.dtype != "float32" or outer * length * lanes >= 1 << 31:
        return None
    places = outer * lanes
    team = replace(team_for(places, length, rows=lanes == 1, plan=plan, dialect=dialect), parts=1)
    made = Kernel(name, f"{packet} of {places} times {length}", team.group, -(-places // team.places))
    code = Code(dialect, made)
    code.parameter("x", "float32")
    code.parameter("out", "int64", written=True)
    code.let("member", "int32", team.member)
    code.let("own", "int32", f"{GROUP_INDEX} * {team.places} + {team.place}")
    code.let("place", "int32", dialect.select(f"own < {places}", "own", str(places - 1)))
    first = f"place * {length}" if lanes == 1 else f"place / {lanes} * {length * lanes} + place % {lanes}"
    code.let("first", "int32", first)
    sign, function = (1.0, "max") if packet == "argmax" else (-1.0, "min")
    code.var("best", "float32", dialect.number(-sign * math.inf))
    code.var("position", "int32", "member")
    with code.loop("i", length, "member", team.size):
        code.let("value", "float32", code.load("x", f"first + i{'' if lanes == 1 else f' * {lanes}'}").text)
        code.let("is_nan", "bool", dialect.is_nan("value"))
        code.let("size", "float32", dialect.select("is_nan", dialect.number(sign * math.inf), "value"))
        with code.when(f"size {'>' if packet == 'argmax' else '<'} best || (is_nan && position >= 0)"):
            code.assign("best", "size")
            code.assign("position", dialect.select("is_nan", f"i - {length}", "i"))
    code.let("mine", "float32", "best")
    reduced(code, team, [(function, "best")])
    first_position(code, team, "position", "mine == best", length)
    code.assign("position", dialect.select("position < 0", f"position + {length}", "position"))
    inside = f"own < {places}" if places % team.places else ""
    with code.when(all_of(inside, "member == 0" if team.size > 1 else "")):
        code.store("out", "place", Value("position", "int32"))
    return made, {"x": context.elements(source.name), "out": node.name}
