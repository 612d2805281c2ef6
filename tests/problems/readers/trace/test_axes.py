"""Axes of definitions: constants, variables and expressions; and constraints over them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.errors import ProblemError
from kforge.problems.readers.trace.axes import check, solve


def expr(text: str) -> dict[str, str]:
    return {"type": "expr", "expression": text}


VAR = {"type": "var"}


@given(st.integers(0, 2**20), st.integers(1, 2**10))
def test_expressions_follow_python(tokens: int, heads: int) -> None:
    axes = {
        "width": expr("-(-tokens // heads) * 2 + tokens % heads"),
        "whole": expr("tokens * heads / heads"),
        "twice": expr("width ** 2"),
        "tokens": VAR,
        "heads": {"type": "const", "value": heads},
    }
    width = -(-tokens // heads) * 2 + tokens % heads
    expected = {"tokens": tokens, "heads": heads, "width": width, "whole": tokens, "twice": width**2}
    assert solve(axes, {"tokens": tokens}, "d") == expected


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"a": VAR}, "the workload gives no value to the axis a"),
        ({"a": expr("b"), "b": expr("a")}, "axis a is defined by itself"),
        ({"a": expr("missing + 1")}, "there is no axis missing"),
        ({"a": expr("9 ** 9 ** 9")}, "is too large"),
        ({"a": expr("2 ** 64 ** 2")}, "is too large"),
        ({"a": expr("1 / 2")}, "1 / 2 is not a whole number"),
        ({"a": expr("1 // 0")}, "divides by zero"),
        ({"a": expr("__import__('os').getpid()")}, "only +, -, *"),
        ({"a": expr("(" * 3000)}, "is not an expression"),
        ({"a": expr("1 - 2")}, "has the value -1, which is no size"),
        ({"a": {"type": "const", "value": 2.5}}, "has the value 2.5, which is no size"),
        ({"a": {"type": "odd"}}, "not const, var or expr"),
        ({"a": 3}, "not const, var or expr"),
    ],
)
def test_axes_without_a_size_are_refused_in_one_line(axes: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        solve(axes, {}, "d")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_constraints_over_axes_are_checked_and_those_over_data_are_returned() -> None:
    axes = {"H": 8, "K": 2}
    assert check(["H == K * 4", "H > K and K >= 1", "indptr[-1] == H"], axes, "d") == ("indptr[-1] == H",)
    with pytest.raises(ProblemError, match="the workload breaks the constraint H < K"):
        check(["H < K"], axes, "d")
