"""Divisions that become products, and those whose divisor may have no inverse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder
from kforge.smith.rewrite.inverses import SMALLEST

if TYPE_CHECKING:
    from collections.abc import Callable

RULE = "inverse for many"


def squares(b: Builder, x: str) -> str:
    return b.reduce("sum", b.map("mul", x, x), (1,))


def exponentials(b: Builder, x: str) -> str:
    return b.reduce("sum", b.map("exp", b.map("sub", x, b.reduce("max", x, (1,)))), (1,))


DIVISORS: dict[str, Callable[[Builder, str], str]] = {
    "a root": lambda b, x: b.map("sqrt", squares(b, x)),
    "at least a number": lambda b, x: b.map("maximum", b.reduce("sum", b.map("abs", x), (1,)), 1e-12),
    "a root and a little": lambda b, x: b.map("add", b.map("sqrt", squares(b, x)), 1e-6),
    "squares and a little": lambda b, x: b.map("add", 1e-6, squares(b, x)),
    "a sum of exponentials": exponentials,
    "a view": lambda b, x: b.reshape(b.reshape(b.map("sqrt", squares(b, x)), (6,)), (6, 1)),
}


@given(made=st.sampled_from(sorted(DIVISORS)), seed=st.integers(0, 99))
def test_what_many_elements_are_divided_by(made: str, seed: int, proof: Any) -> None:
    b = Builder()
    x = b.input("x", 0, (6, 5), "float32")
    after = proof.holds(RULE, b, b.map("div", b.map("tanh", x), DIVISORS[made](b, x)), seed)
    assert after[after.outputs[0]].function == "mul"


UNSURE: dict[str, Callable[[Builder, str], str]] = {
    "it may be subnormal": squares,
    "nearly subnormal": lambda b, x: b.map("maximum", squares(b, x), SMALLEST / 100),
    "a root of nothing and a subnormal number": lambda b, x: b.map("add", b.map("sqrt", squares(b, x)), squares(b, x)),
    "the larger of those": lambda b, x: b.map("maximum", b.map("sqrt", squares(b, x)), squares(b, x)),
    "it may cancel": lambda b, x: b.map("add", b.reduce("sum", x, (1,)), 1e-6),
    "one for each element": lambda b, x: b.map("add", b.map("abs", x), 1.0),
    "not of the largest": lambda b, x: b.reduce("sum", b.map("exp", x), (1,)),
}


@pytest.mark.parametrize("made", UNSURE)
def test_divisors_that_stay(made: str, proof: Any) -> None:
    b = Builder()
    x = b.input("x", 0, (6, 5), "float32")
    proof.stays(RULE, b, b.map("div", x, UNSURE[made](b, x)))


def test_the_smallest_that_is_sure_has_an_inverse() -> None:
    tiny = torch.tensor(2.0**-149)  # of all numbers above zero
    assert torch.isfinite(1 / tiny.sqrt())
    assert torch.isfinite(1 / torch.tensor(SMALLEST))
    assert not torch.isfinite(1 / torch.tensor(SMALLEST / 100))
