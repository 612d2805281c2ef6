"""Numbers over a suite: failures cost something, and what is not proven is no gain."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.metrics import ProblemResult, by_family, summarize
from kforge.records import Comparison, Interval


def compared(baseline: str, median: float, *, wide: bool = False, doubt: str | None = None) -> Comparison:
    width = 0.5 if wide else 0.01
    interval = Interval(median=median, low=median * (1 - width), high=median * (1 + width))
    return Comparison(baseline=baseline, identity="torch", seconds=1e-3, speedup=interval, doubt=doubt)


def result(state: str = "correct", *comparisons: Comparison, family: str = "norms") -> ProblemResult:
    return ProblemResult(name=f"{family}/x", family=family, state=state, comparisons=comparisons)


def test_failures_and_what_is_not_proven_count_as_one() -> None:
    results = [
        result("correct", compared("eager", 4.0), compared("compile", 2.0)),
        result("correct", compared("eager", 1.5, wide=True), compared("compile", 1.5, wide=True)),
        result("correct", compared("eager", 1.3, wide=True), compared("compile", 1.3, wide=True)),
        result("correct", compared("eager", 0.25), compared("compile", 0.25)),
        result("no_kernel"),
        result("mismatch"),
        result("broken"),
        result("disproved"),
        result("rejected"),
    ]
    found = summarize(results, ["eager", "compile"])
    assert (found.problems, found.done, found.correct) == (9, 9, 4 / 9)
    assert found.states == {
        "correct": 4, "no_kernel": 1, "mismatch": 1, "broken": 1, "disproved": 1, "rejected": 1,
    }  # fmt: skip
    assert (found.gains["eager"].faster, found.gains["eager"].share) == (1, 1 / 9)
    assert found.gains["eager"].geometric_mean == pytest.approx(4.0 ** (1 / 9))
    assert found.gains["compile"].geometric_mean == pytest.approx(2.0 ** (1 / 9))
    assert {gain.not_measured for gain in found.gains.values()} == {0}


def test_what_was_disturbed_is_not_measured_and_not_part_of_any_share() -> None:
    disturbed = compared("eager", 9.0, doubt="a busy machine")
    results = [
        result("correct", compared("eager", 4.0), compared("compile", 2.0, doubt="a busy machine")),
        result("correct", disturbed, compared("compile", 0.9)),
        result("mismatch"),
    ]
    found = summarize(results, ["eager", "compile"])
    eager, both = found.gains["eager"], found.over_fastest
    assert (eager.faster, eager.measured, eager.not_measured, eager.share) == (1, 2, 1, 0.5)
    assert eager.cannot_tell == 0, "a disturbed measurement has no interval that could leave it open"
    assert eager.geometric_mean == pytest.approx(2.0)
    assert both is not None
    assert (both.faster, both.measured, both.not_measured) == (0, 2, 1), "slower than one of them is slower"
    for others in ([], [result("no_kernel")]):
        nothing = summarize([result("correct", disturbed), *others], ["eager"]).gains["eager"]
        assert (nothing.faster, nothing.measured, nothing.not_measured) == (0, len(others), 1)
        assert (nothing.share, nothing.geometric_mean) == (None, None), "0 % and 1.00x would be figures"
    failed = summarize([result("mismatch")], ["eager"]).gains["eager"]
    assert (failed.share, failed.geometric_mean) == (0.0, 1.0), "a failure is one"


def test_a_program_that_was_not_compared_with_a_baseline_is_not_measured_against_it() -> None:
    """Cause: where torch.compile did not run, the column said 0 % and 1.00x over it."""
    alone = result("correct", compared("eager", 4.0))
    nothing = summarize([alone, result("mismatch")], ["eager", "compile"]).gains["compile"]
    assert (nothing.measured, nothing.not_measured, nothing.not_compared) == (1, 0, 1)
    assert (nothing.share, nothing.geometric_mean) == (None, None)
    both = result("correct", compared("eager", 4.0), compared("compile", 4.0))
    some = summarize([alone, both, result("mismatch")], ["eager", "compile"]).gains["compile"]
    assert (some.faster, some.measured, some.not_compared, some.share) == (1, 2, 1, 0.5)
    assert some.geometric_mean == pytest.approx(2.0)


def test_over_the_faster_baseline_of_each_problem() -> None:
    results = [
        result("correct", compared("eager", 4.0), compared("compile", 2.0)),
        result("correct", compared("eager", 3.0), compared("compile", 5.0)),
        result("correct", compared("eager", 7.0)),  # torch.compile could not do it
        result("correct", compared("eager", 8.0), compared("compile", 1.01)),
        result("mismatch"),
    ]
    gain = summarize(results, ["eager", "compile"]).over_fastest
    assert gain is not None
    assert (gain.faster, gain.share) == (3, 0.6)
    assert gain.geometric_mean == pytest.approx((2.0 * 3.0 * 7.0) ** (1 / 5))
    assert summarize(results, ["eager"]).over_fastest is None


def test_the_lower_bound_decides() -> None:
    just, nearly = compared("eager", 1.04), compared("eager", 1.03)
    assert just.speedup.low > 1.02 > nearly.speedup.low
    assert summarize([result("correct", just)], ["eager"]).gains["eager"].faster == 1
    assert summarize([result("correct", nearly)], ["eager"]).gains["eager"].faster == 0


def test_what_has_not_come_to_an_end_is_not_counted() -> None:
    found = summarize([result("correct", compared("eager", 2.0)), result("waiting"), result("unfinished")], ["eager"])
    assert (found.problems, found.done, found.correct) == (3, 1, 1.0)
    assert found.gains["eager"].geometric_mean == pytest.approx(2.0)
    nothing = summarize([result("unfinished")], ["eager"])
    assert (nothing.done, nothing.correct, nothing.gains) == (0, 0.0, {})


def test_families_keep_their_order() -> None:
    results = [result("correct", family=name) for name in ("scans", "norms", "scans")]
    assert {name: found.problems for name, found in by_family(results, ["eager"]).items()} == {"scans": 2, "norms": 1}
    assert list(by_family(results, ["eager"])) == ["scans", "norms"]


@given(st.lists(st.floats(0.01, 1000.0), min_size=1, max_size=20))
def test_no_program_makes_a_suite_slower_than_the_original(medians: list[float]) -> None:
    results = [result("correct", compared("eager", median)) for median in medians]
    mean = summarize(results, ["eager"]).gains["eager"].geometric_mean
    assert mean is not None
    wins = [median for median in medians if median * 0.99 > 1.02]
    assert mean >= 1.0
    assert mean == pytest.approx(math.prod(wins) ** (1 / len(medians)), rel=1e-6)
