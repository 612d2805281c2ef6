"""Python numbers and flags that are given with each call are other ones in some cases."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kforge.problems.inputs.scalars import (
    NEGATED,
    ORDINARY,
    OTHER,
    SCALARS,
    TURNED,
    alone,
    changed_scalars,
    extraordinary,
    ordinary_singly,
    signed,
    singly_alone,
    variations_alone,
)
from kforge.problems.inputs.structure import Structure


def varied(given: list[Any], name: str, number: int = 0) -> list[Any]:
    structure = Structure.observed(lambda _: given, (1, 2))
    return SCALARS[name][number](given, torch.Generator().manual_seed(1), structure)


def test_numbers_and_flags_given_with_a_call_are_other_ones() -> None:
    given = [torch.ones(2), 0.5, {"causal": False}, 3, 0.6 + 0.8j, "relu"]
    assert Structure.observed(lambda _: given, (1, 2)).scalars == (float, bool, int, complex, str)
    fresh = varied(given, OTHER)
    assert fresh[1] != 0.5
    assert fresh[2] == {"causal": True}
    assert fresh[3] == 3
    assert abs((fresh[4] / given[4]).imag) > 1e-3
    assert fresh[5] == "relu"
    assert changed_scalars(given, fresh) == {0, 1, 3}
    assert changed_scalars(given, varied(given, OTHER, 1)) == {0, 3}
    assert changed_scalars(given, varied(given, OTHER, 2)) == {1}


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-6, -1e9, 0j, 1e-3, -20.0, 0.05])
def test_a_number_that_no_factor_makes_an_ordinary_one_becomes_ordinary(value: float) -> None:
    given = [value, 0.5, True, 7, 1.0]
    assert extraordinary(given) == [0]
    fresh = varied(given, ORDINARY)
    assert 0.25 <= abs(fresh[0]) <= 0.95
    assert type(fresh[0]) is type(value)
    if not isinstance(value, complex):
        assert math.copysign(1, fresh[0]) == math.copysign(1, value)
    assert fresh[1:] == given[1:]
    assert changed_scalars(given, fresh) == {0}


def test_zero_and_infinity_count_as_unchanged_by_a_factor() -> None:
    given = [0.0, math.inf, math.nan, 0.5]
    assert changed_scalars(given, varied(given, OTHER)) == {3}


def test_several_such_numbers_become_ordinary_singly() -> None:
    given = [0.0, 0.5, math.inf]
    assert set(ordinary_singly(given)) == {0, 2}
    structure = Structure.observed(lambda _: given, (1, 2))
    fresh = ordinary_singly(given)[2][0](given, torch.Generator().manual_seed(1), structure)
    assert changed_scalars(given, fresh) == {2}
    assert ordinary_singly([0.0, 0.5]) == {}


def varied_alone(given: list[Any], name: str, number: int = 0) -> list[Any]:
    structure = Structure.observed(lambda _: given, (1, 2))
    return variations_alone(name, given)[number](given, torch.Generator().manual_seed(1), structure)


@pytest.mark.parametrize("value", [1.5, -0.7, 1e-5, -1e9])
@pytest.mark.parametrize("number", [0, 1])
def test_a_number_is_negated(value: float, number: int) -> None:
    given = [2, value, True, "relu", 0.6 + 0.8j]
    assert signed(given) == {1}
    assert alone(given) == [f"{NEGATED} #0"]
    fresh = varied_alone(given, f"{NEGATED} #0", number)
    assert math.copysign(1, fresh[1]) == -math.copysign(1, value)
    assert [*fresh[:1], *fresh[2:]] == [*given[:1], *given[2:]]
    if not number:
        assert 0.2 < abs(fresh[1]) < 4


def test_zero_becomes_negative_and_infinity_stays() -> None:
    given = [0.0, math.inf, math.nan]
    assert signed(given) == {0, 1, 2}
    assert alone(given) == [f"{NEGATED} #0"]
    assert -0.95 <= varied_alone(given, f"{NEGATED} #0")[0] <= -0.25
    assert changed_scalars(given, varied_alone(given, f"{NEGATED} #0", 1)) == set()


def test_each_number_is_negated_and_each_flag_turned_alone() -> None:
    given = [1.5, False, 0.5, True]
    assert alone(given) == [f"{NEGATED} #0", f"{NEGATED} #1", f"{TURNED} #0", f"{TURNED} #1"]
    assert changed_scalars(given, varied_alone(given, f"{NEGATED} #1")) == {2}
    assert varied_alone(given, f"{TURNED} #0") == [1.5, True, 0.5, True]
    assert varied_alone(given, f"{TURNED} #1") == [1.5, False, 0.5, False]
    assert alone([True, 3, "relu"]) == []  # a single flag is turned in another case


def test_of_many_numbers_several_are_negated_together_or_singly() -> None:
    given = [1.0 + number for number in range(6)]
    assert alone(given) == [f"{NEGATED} #{number}" for number in range(4)]
    assert changed_scalars(given, varied_alone(given, f"{NEGATED} #0")) == {0, 4}
    assert set(singly_alone(f"{NEGATED} #0", given)) == {0, 4}
    assert singly_alone(f"{NEGATED} #3", given) == {}
