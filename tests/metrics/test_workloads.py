"""Several workloads of one problem: weighted means, and the time of all calls that are served."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.metrics import ProblemResult, WeightedResult, weigh
from kforge.records import Comparison, Interval


def part(
    weight: float, speedup: float, *, seconds: float = 1.0, problem: str = "p", state: str = "correct", doubt: str = ""
) -> WeightedResult:
    interval = Interval(median=speedup, low=speedup * 0.99, high=speedup * 1.01)
    compared = Comparison(baseline="eager", identity="torch", seconds=seconds, speedup=interval, doubt=doubt or None)
    comparisons = (compared,) if state == "correct" else ()
    return WeightedResult(
        problem, weight, ProblemResult(name=f"{problem}/{weight}", family="", state=state, comparisons=comparisons)
    )


def test_the_shape_that_is_served_most_decides() -> None:
    (found,) = weigh([part(94, 1.0, seconds=0.001), part(6, 4.0, seconds=1.0)], ["eager"])
    assert (found.workloads, found.correct) == (2, 2)
    assert found.geometric_mean["eager"] == pytest.approx(4.0**0.06)
    assert found.served["eager"] == pytest.approx((0.094 + 6) / (0.094 + 1.5))


def test_a_failure_counts_as_one_and_has_no_time() -> None:
    (found,) = weigh([part(1, 4.0), part(1, 0.0001, state="mismatch")], ["eager"])
    assert (found.correct, found.geometric_mean["eager"]) == (1, pytest.approx(2.0))
    assert found.served == {}


def test_what_was_disturbed_is_left_out_and_counted() -> None:
    (found,) = weigh([part(1, 4.0), part(9, 100.0, doubt="a busy machine")], ["eager", "compile"])
    assert found.not_measured == {"eager": 1, "compile": 2}
    assert found.geometric_mean == {"eager": pytest.approx(4.0)}
    assert found.served == {}


def test_a_problem_is_weighed_when_all_its_workloads_are_finished() -> None:
    parts = [part(1, 2.0, problem="a"), part(2, 2.0, problem="a", state="unfinished"), part(1, 2.0, problem="alone")]
    assert weigh(parts, ["eager"]) == []


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.1, 50), st.floats(1e-6, 1)), min_size=2, max_size=8))
def test_means_lie_between_the_speedups(given: list[tuple[float, float, float]]) -> None:
    (found,) = weigh([part(weight, speedup, seconds=seconds) for weight, speedup, seconds in given], ["eager"])
    kept = [speedup if speedup * 0.99 > 1.02 else 1.0 for _, speedup, _ in given]
    for mean in (found.geometric_mean["eager"], found.served["eager"]):
        assert min(kept) * (1 - 1e-9) <= mean <= max(kept) * (1 + 1e-9)


@given(st.floats(0.01, 100), st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 50)), min_size=2, max_size=6))
def test_only_the_ratios_of_weights_count(scale: float, given: list[tuple[float, float]]) -> None:
    (one,), (other,) = (
        weigh([part(weight * factor, speedup) for weight, speedup in given], ["eager"]) for factor in (1.0, scale)
    )
    assert one.geometric_mean["eager"] == pytest.approx(other.geometric_mean["eager"])
    assert one.served["eager"] == pytest.approx(other.served["eager"])
