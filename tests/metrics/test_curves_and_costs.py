"""Properties of fast_p curves, states per iteration, pass@k, ceilings and costs over arbitrary results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.metrics import (
    ENDED,
    START,
    AttemptResult,
    ProblemResult,
    chance_of_one,
    cost,
    cost_curve,
    fast_curve,
    fast_curves,
    iteration_states,
    kept_speedup,
    mean_speedup,
    pass_at_k,
    roofline_share,
    roofline_shares,
    sol_of,
    sol_score,
    sol_scores,
    state_changes,
    summarize,
)
from kforge.records import Comparison, Interval, Peaks, Roofline, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

BASELINES = ("eager", "compile")
STATES = ("correct", "mismatch", "compilation_failure", "no_kernel")


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[Comparison, ...]:
    found = []
    for baseline in draw(st.sampled_from([(), ("eager",), BASELINES])):
        low, median, high = sorted(draw(st.lists(st.floats(0.1, 20.0), min_size=3, max_size=3)))
        doubt = draw(st.sampled_from([None, None, "a busy machine"]))
        speedup = Interval(median=median, low=low, high=high)
        found.append(Comparison(baseline=baseline, identity="torch", seconds=1e-3, speedup=speedup, doubt=doubt))
    return tuple(found)


@st.composite
def steps(draw: st.DrawFn) -> tuple[AttemptResult, ...]:
    states = draw(st.lists(st.sampled_from(STATES), max_size=4))
    tokens = draw(st.lists(st.integers(0, 1000), min_size=len(states), max_size=len(states)))
    return tuple(
        AttemptResult(
            state=state,
            is_first=index == 0 or draw(st.booleans()),
            usage=Usage(requests=1, input_tokens=tokens[index], cost_usd=tokens[index] / 100),
            elapsed=float(index + 1),
            device_seconds=1.0,
        )
        for index, state in enumerate(states)
    )


@st.composite
def problem_results(draw: st.DrawFn) -> ProblemResult:
    made = draw(steps())
    state = draw(st.sampled_from(["broken", "unfinished", *(step.state for step in made)]))
    if any(step.is_correct for step in made) and draw(st.booleans()):
        state = "correct"
    correct = state == "correct"
    return ProblemResult(
        name=draw(st.uuids().map(str)),
        family="",
        state=state,
        comparisons=draw(comparisons()) if correct else (),
        steps=made,
        usage=sum((step.usage for step in made), Usage()),
        device_seconds=float(len(made)),
        program_seconds=draw(st.floats(1e-6, 1.0)) if correct else None,
        roofline=roofline(draw(st.floats(0.0, 1.0)), draw(st.floats(0.0, 1.0))) if draw(st.booleans()) else None,
    )


many = st.lists(problem_results(), max_size=12)


def roofline(memory: float, compute: float) -> Roofline:
    peaks = Peaks(device="a device", bytes_per_second=1e10, flops_per_second=1e11)
    return Roofline(peaks=peaks, memory_seconds=memory, compute_seconds=compute)


def compared(median: float, *, low: float | None = None, high: float | None = None) -> Comparison:
    interval = Interval(median=median, low=low or median, high=high or median)
    return Comparison(baseline="eager", identity="torch", seconds=1e-3, speedup=interval)


def solved(*found: Comparison, name: str = "a", **more: object) -> ProblemResult:
    return ProblemResult.model_validate({"name": name, "family": "", "state": "correct", "comparisons": found, **more})


def done(results: Sequence[ProblemResult]) -> list[ProblemResult]:
    return [result for result in results if result.is_done]


# --- fast_p -------------------------------------------------------------------------------------------------


@given(many)
def test_a_curve_falls_and_its_columns_add_up_to_all_problems(results: list[ProblemResult]) -> None:
    for curve in fast_curves(results, BASELINES):
        assert curve.problems == len(done(results))
        shares = [point.share.value for point in curve.points]
        assert shares == sorted(shares, reverse=True)
        for point in curve.points:
            counts = (point.over, point.not_over, point.cannot_tell, point.not_measured)
            assert sum(counts) == curve.problems
            assert min(counts) >= 0
            assert point.not_measured <= curve.not_measured
            assert 0 <= point.share.low <= point.share.value <= point.share.high <= 1
            # the median lies between the bounds, so what is proven is counted, and what is disproved is not
            assert point.over <= round(point.share.value * curve.problems) <= curve.problems - point.not_over


@given(many)
def test_fast_0_is_the_share_of_correct_programs(results: list[ProblemResult]) -> None:
    for curve in fast_curves(results, BASELINES):
        if (point := curve.at(0.0)) is not None:
            assert point.share.value == pytest.approx(summarize(results, BASELINES).correct)
            assert point.over == sum(each.is_correct for each in results)
            assert (point.cannot_tell, point.not_measured) == (0, 0)
            assert curve.measured + curve.not_measured == point.over


@given(many)
def test_against_the_faster_of_both_is_never_above_either(results: list[ProblemResult]) -> None:
    complete = [each for each in results if len(each.comparisons) != 1]
    eager, compiled, both = (fast_curve(complete, each) for each in (("eager",), ("compile",), BASELINES))
    for one, other, of_both in zip(eager.points, compiled.points, both.points, strict=True):
        assert of_both.share.value <= min(one.share.value, other.share.value)


def test_fast_p_is_strict_and_over_all_problems() -> None:
    failed = ProblemResult(name="f", family="", state="mismatch")
    results = [solved(compared(1.0)), solved(compared(1.5, low=0.9, high=2.0)), failed, failed]
    (at_one,) = fast_curve(results, ["eager"], [1.0]).points
    assert at_one.share.value == 0.25, "1.0 is not over 1, and failures count"
    assert (at_one.over, at_one.not_over, at_one.cannot_tell) == (0, 3, 1)


def test_a_problem_that_was_not_measured_is_over_no_p_and_counted_apart() -> None:
    """Cause: disturbed measurements were counted as *cannot tell*, like measured ones whose interval contains p."""
    doubtful = compared(9.0).model_copy(update={"doubt": "a busy machine"})
    open_ended = compared(1.5, low=0.9, high=2.0)
    curve = fast_curve([solved(doubtful), solved(), solved(open_ended)], ["eager"], [1.0])
    (point,) = curve.points
    assert (point.share.value, point.cannot_tell, point.not_measured) == (1 / 3, 1, 2)
    assert (curve.measured, curve.not_measured) == (1, 2)


def test_an_unknown_speedup_is_not_over_what_another_baseline_disproves() -> None:
    disturbed = compared(9.0).model_copy(update={"baseline": "compile", "doubt": "a busy machine"})
    at_one, at_four = fast_curve([solved(compared(3.0), disturbed)], BASELINES, [1.0, 4.0]).points
    assert (at_one.not_over, at_one.not_measured) == (0, 1)
    assert (at_four.not_over, at_four.not_measured) == (1, 0), "it is at most 3x as fast as eager"


def test_the_same_seed_gives_the_same_bands_and_more_problems_narrower_ones() -> None:
    few = [solved(compared(2.0)), solved(compared(0.5))] * 5
    (one,), (again,) = (fast_curve(few, ["eager"], [1.0], seed=7).points for _ in range(2))
    (wide,) = fast_curve(few * 100, ["eager"], [1.0], seed=7).points
    assert one == again
    assert wide.share.high - wide.share.low < one.share.high - one.share.low < 1


@given(many)
def test_the_mean_with_its_band_is_that_of_the_table(results: list[ProblemResult]) -> None:
    found = mean_speedup(results, ["eager"])
    gains = summarize(results, ["eager"]).gains
    table = gains["eager"].geometric_mean if gains else None
    assert (found is None) == (table is None)
    if found is not None:
        assert found.value == pytest.approx(table)
        assert 1.0 <= found.low <= found.value <= found.high


@given(many)
def test_the_counts_of_a_gain_add_up_to_the_correct_programs(results: list[ProblemResult]) -> None:
    found = summarize(results, BASELINES)
    for gain in (*found.gains.values(), *([found.over_fastest] if found.over_fastest else [])):
        counts = (gain.faster, gain.slower, gain.cannot_tell, gain.unknown)
        assert sum(counts) == sum(each.is_correct for each in done(results))
        assert min(counts) >= 0
        assert gain.unknown == gain.not_measured + gain.not_compared


@given(problem_results())
def test_a_kept_speedup_is_never_below_one(result: ProblemResult) -> None:
    kept = kept_speedup(result, BASELINES)
    assert kept is None or kept >= 1.0


# --- iterations ---------------------------------------------------------------------------------------------


@given(many)
def test_every_problem_is_in_one_state_or_ended_in_each_iteration(results: list[ProblemResult]) -> None:
    found = iteration_states(results)
    assert [each.index for each in found] == list(range(max((len(each.steps) for each in done(results)), default=0)))
    for each in found:
        assert sum(each.states.values()) + each.ended == len(done(results))
    solved_by_then = [each.solved for each in found]
    assert solved_by_then == sorted(solved_by_then)


@given(many)
def test_what_flows_into_a_state_flows_out_of_it(results: list[ProblemResult]) -> None:
    changes = state_changes(results)
    for index, each in enumerate(iteration_states(results)):
        for state, count in each.states.items():
            into = sum(change.problems for change in changes if (change.index, change.after) == (index, state))
            out = sum(change.problems for change in changes if (change.index, change.before) == (index + 1, state))
            assert into == out == count
    assert sum(change.problems for change in changes if change.before == START) == len(done(results))
    assert sum(change.problems for change in changes if change.after == ENDED) == len(done(results))


@given(st.integers(1, 30), st.data())
def test_pass_at_k_is_the_chance_of_a_correct_draw(samples: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, samples))
    k = data.draw(st.integers(1, samples))
    missed = math.prod((samples - correct - drawn) / (samples - drawn) for drawn in range(k))
    assert chance_of_one(samples, correct, k) == pytest.approx(1 - max(missed, 0.0))
    assert chance_of_one(samples, correct, 1) == pytest.approx(correct / samples)


def test_pass_at_k_counts_first_programs_only_and_says_where_they_are_too_few() -> None:
    def sampled(name: str, *states: str) -> ProblemResult:
        made = (
            *(AttemptResult(state=each, is_first=True) for each in states),
            AttemptResult(state="correct", is_first=False),
        )
        return ProblemResult(name=name, family="", state="correct", steps=made if states else ())

    results = [sampled("a", "correct", "mismatch"), sampled("b", "mismatch", "mismatch"), sampled("c", "correct")]
    once, twice = pass_at_k(results, 1), pass_at_k(results, 2)
    assert once.share is not None
    assert twice.share is not None
    assert (once.share.value, once.problems, once.too_few) == (0.5, 3, 0)
    assert (twice.share.value, twice.problems, twice.too_few) == (0.5, 2, 1)
    nothing = pass_at_k([ProblemResult(name="d", family="", state="broken")], 1)
    assert nothing.share is not None
    assert (nothing.share.value, nothing.problems) == (0.0, 1)
    twins = pass_at_k([sampled("a", "correct"), sampled("a", "mismatch")], 2)
    assert twins.share is not None
    assert (twins.share.value, twins.problems) == (1.0, 1), "two runs of one problem are two samples of it"


# --- ceilings -----------------------------------------------------------------------------------------------


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0), st.floats(1e-6, 1.0))
def test_the_sol_score_is_between_nothing_and_the_speed_of_light(program: float, baseline: float, least: float) -> None:
    score = sol_score(program, baseline, least)
    assert (score is None) == (baseline <= least)
    if score is not None:
        assert 0.0 < score <= 1.0
        assert sol_score(baseline, baseline, least) == pytest.approx(0.5)
        assert sol_score(least, baseline, least) == 1.0
        faster = sol_score(program / 2, baseline, least)
        assert faster is not None
        assert faster >= score


@given(many)
def test_ceilings_count_every_finished_problem(results: list[ProblemResult]) -> None:
    for found in (roofline_shares(results), sol_scores(results)):
        assert found.problems + found.unknown == len(done(results))
        assert found.mean is None or 0.0 <= found.mean.low <= found.mean.value <= found.mean.high <= 1.0


def test_shares_of_the_roofline() -> None:
    half = solved(compared(2.0), program_seconds=2e-3, roofline=roofline(1e-3, 0.0))
    assert roofline_share(half) == 0.5
    assert sol_of(half) is None, "eager takes 1 ms, the least time that the device allows"
    assert sol_of(half.model_copy(update={"roofline": roofline(0.5e-3, 0.0)})) == pytest.approx(0.25)
    assert roofline_share(half.model_copy(update={"roofline": roofline(9e-3, 0.0)})) is None, "no such program exists"
    assert roofline_share(half.model_copy(update={"roofline": None})) is None
    assert roofline_share(half.model_copy(update={"state": "mismatch"})) == 0.0
    less_arithmetic = half.model_copy(update={"roofline": roofline(1e-3, 9e-3)})
    assert roofline_share(less_arithmetic) == 0.5, "faster than the arithmetic limit: only memory counts"


# --- costs --------------------------------------------------------------------------------------------------


@given(many)
def test_a_cost_curve_rises_to_the_solved_problems(results: list[ProblemResult]) -> None:
    for currency in ("usd", "tokens", "device_seconds", "seconds"):
        curve = cost_curve(results, currency)  # type: ignore[arg-type]
        assert [point.spent for point in curve] == sorted({point.spent for point in curve})
        if curve:
            assert curve[-1].solved == sum(each.is_correct for each in results)
            assert curve[-1].share == pytest.approx(summarize(results, BASELINES).correct)


@given(many)
def test_costs_are_of_all_problems_and_per_solved_one(results: list[ProblemResult]) -> None:
    found = cost(results)
    assert found.tokens == sum(step.usage.input_tokens for each in results for step in each.steps)
    assert (found.tokens_per_solved is None) == (found.solved == 0)
    if found.solved:
        assert found.tokens_per_solved == found.tokens / found.solved
        assert found.device_seconds_per_solved == pytest.approx(found.device_seconds / found.solved)


def test_a_price_that_is_not_known_is_not_zero() -> None:
    free, priced = solved(name="a"), solved(name="b", usage=Usage(requests=1, cost_usd=3.0))
    unknown = solved(name="c", usage=Usage(requests=2))
    assert (cost([free]).usd, cost([free]).usd_per_solved) == (0.0, 0.0), "no model was asked"
    assert cost([free, priced]).usd_per_solved == 1.5
    assert (cost([unknown]).usd, cost([unknown]).unpriced, cost([unknown]).usd_per_solved) == (None, 2, None)
    assert (cost([priced, unknown]).usd, cost([priced, unknown]).usd_per_solved) == (3.0, None)
