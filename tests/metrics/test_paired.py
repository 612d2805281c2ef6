"""Paired tests: a real difference is found, chance is not, and what cannot be told is left out and counted."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge.metrics import (
    ALPHA,
    MEASURES,
    NO_DIFFERENCE,
    AttemptResult,
    PairedTest,
    ProblemResult,
    adjusted,
    holm,
    least_pairs,
    paired_test,
    sign_flip_p,
)
from kforge.records import Comparison, Interval, Usage


def result(number: int, median: float | None, *, doubt: str | None = None) -> ProblemResult:
    """A problem with a program of this speed; a failure for None."""
    if median is None:
        return ProblemResult(name=str(number), family="", state="mismatch")
    interval = Interval(median=median, low=median * 0.99, high=median * 1.01)
    found = Comparison(baseline="eager", identity="torch", seconds=1e-3, speedup=interval, doubt=doubt)
    steps = (AttemptResult(state="correct", is_first=True),)
    return ProblemResult(name=str(number), family="", state="correct", comparisons=(found,), steps=steps)


def arm(*medians: float | None) -> list[ProblemResult]:
    return [result(number, median) for number, median in enumerate(medians)]


def compare(base: list[ProblemResult], other: list[ProblemResult], measure: str = "speedup") -> PairedTest:
    return adjusted([paired_test(base, other, measure, ["eager"])])[0]


def test_a_consistent_gain_is_found_with_its_size() -> None:
    found = compare(arm(*[1.5] * 8), arm(*[3.0] * 8))
    assert (found.finding, found.pairs, found.differ) == ("better", 8, 8)
    assert found.difference is not None
    assert found.difference.value == pytest.approx(2.0)
    assert (found.base, found.other) == (pytest.approx(1.5), pytest.approx(3.0))
    assert found.p_value == pytest.approx(2 / 2**8)
    assert compare(arm(*[3.0] * 8), arm(*[1.5] * 8)).finding == "worse"


def test_too_few_pairs_show_nothing_and_say_how_many_are_needed() -> None:
    found = compare(arm(*[1.5] * 5), arm(*[9.0] * 5))
    assert (found.finding, found.differ, found.needed) == (NO_DIFFERENCE, 5, 6)
    assert compare(arm(*[1.5] * 6), arm(*[9.0] * 6)).finding == "better"


def test_equal_arms_show_no_difference() -> None:
    same = arm(1.5, 2.0, None, 3.0)
    found = compare(same, same)
    assert (found.finding, found.differ, found.p_value) == (NO_DIFFERENCE, 0, 1.0)


def test_a_problem_that_is_unknown_on_one_side_is_left_out_and_counted() -> None:
    other = [*arm(3.0, 3.0), result(2, 99.0, doubt="a busy machine"), result(7, 5.0)]
    found = compare(arm(1.5, 1.5, 1.5, 1.5), other)
    assert (found.pairs, found.unknown) == (2, 1), "a problem of one side only is no pair"
    nothing = compare(arm(1.5), [result(0, 2.0, doubt="a busy machine")])
    assert (nothing.pairs, nothing.unknown, nothing.difference, nothing.finding) == (0, 1, None, NO_DIFFERENCE)


def test_correctness_is_compared_by_the_sign_test() -> None:
    found = compare(arm(*[None] * 8, 2.0, 2.0), arm(*[2.0] * 8, 2.0, None), "correct")
    assert (found.base, found.other, found.differ) == (0.2, 0.9, 9)
    assert found.p_value == pytest.approx(2 * (1 + 9) / 2**9), "8 of 9 in one direction"


def test_of_a_cost_less_is_better() -> None:
    def spent(tokens: int) -> list[ProblemResult]:
        usage = Usage(requests=1, input_tokens=tokens)
        return [each.model_copy(update={"usage": usage}) for each in arm(*[2.0] * 8)]

    assert compare(spent(100), spent(50), "tokens").finding == "better"
    assert compare(spent(50), spent(100), "tokens").finding == "worse"


def test_repetitions_of_a_problem_are_one_pair_with_their_mean() -> None:
    base = [result(0, 2.0), result(0, 8.0)]
    found = compare(base, [result(0, 4.0)])
    assert (found.pairs, found.differ, found.base) == (1, 0, pytest.approx(4.0))


def test_chance_alone_is_rarely_called_a_difference() -> None:
    draw = random.Random(1)
    false_alarms = 0
    for _ in range(200):
        arms = [arm(*(draw.choice([1.2, 2.0, 4.0, None]) for _ in range(16))) for _ in range(2)]
        false_alarms += compare(*arms).finding != NO_DIFFERENCE
    assert false_alarms <= 20, "5 % are expected: 10 of 200"


@settings(max_examples=50)
@given(st.lists(st.floats(-100, 100).map(lambda value: round(value, 3)), min_size=1, max_size=8))
def test_the_permutation_test_counts_all_sign_flips(differences: list[float]) -> None:
    total = abs(sum(differences))
    flips = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    expected = sum(each >= total - 1e-9 for each in flips) / len(flips)
    assert sign_flip_p(differences) == pytest.approx(expected)
    assert sign_flip_p([-each for each in differences]) == pytest.approx(expected)


def test_many_pairs_are_tested_by_random_flips_that_follow_from_the_seed() -> None:
    draw = random.Random(2)
    noise = [draw.gauss(0, 1) for _ in range(300)]
    assert sign_flip_p(noise, seed=3) == sign_flip_p(noise, seed=3)
    assert sign_flip_p(noise) > ALPHA > sign_flip_p([each + 0.5 for each in noise])


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(values: list[float]) -> None:
    found = holm(values)
    assert all(before <= after <= 1 for before, after in zip(values, found, strict=True))
    assert [found[i] for i in sorted(range(len(values)), key=values.__getitem__)] == sorted(found)
    if len(values) > 1:
        assert min(found) == pytest.approx(min(1.0, min(values) * len(values)))


@given(st.integers(1, 1000))
def test_as_many_pairs_are_needed_as_can_be_significant(tests: int) -> None:
    pairs = least_pairs(tests)
    assert sign_flip_p([1.0] * min(pairs, 13)) * tests <= ALPHA or pairs > 13
    assert 2.0 ** (2 - pairs) * tests > ALPHA


def test_every_measure_has_a_number_for_a_plain_success() -> None:
    for name, measure in MEASURES.items():
        assert measure.value(result(0, 2.0), ["eager"]) is not None, name
