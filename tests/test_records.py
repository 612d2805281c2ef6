from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kforge import records
from kforge.records import (
    VERDICT,
    WIN_BOUND,
    Attempt,
    Candidate,
    Comparison,
    CompilationFailure,
    Correct,
    Evaluation,
    EvaluationPolicy,
    GenerationFailure,
    HeadToHead,
    Interval,
    Mismatch,
    Problem,
    Proof,
    Receipt,
    Record,
    Rejected,
    RuntimeFailure,
    Timing,
    Usage,
    as_json,
)
from kforge.records.numbers import LARGEST, LARGEST_COUNT, SMALLEST, Amount, Count, Finite, Positive
from kforge.records.policy import CHOICES
from kforge.records.verdict import pooled

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

KINDS = [
    kind
    for kind in vars(records).values()
    if isinstance(kind, type) and issubclass(kind, Record) and kind is not Record
]
VERDICTS = [GenerationFailure, CompilationFailure, RuntimeFailure, Mismatch, Rejected, Correct]
NUMBERS = st.floats(allow_nan=False).map(lambda number: number + 0.0)  # so that equal numbers are written equally
BOUNDED: dict[Any, st.SearchStrategy[Any]] = {
    Positive: st.floats(SMALLEST, LARGEST),
    Amount: st.floats(0.0, LARGEST),
    Finite: st.floats(-LARGEST, LARGEST).map(lambda number: number + 0.0),
    Count: st.integers(0, LARGEST_COUNT),
}
FEW = settings(max_examples=25)  # a test for each of many kinds


def of(kind: type[Record]) -> st.SearchStrategy[Any]:
    """Any valid record of a kind, from the types of its fields."""
    if kind is Interval:
        return (
            st.lists(BOUNDED[Positive], min_size=3, max_size=3)
            .map(lambda three: dict(zip(("low", "median", "high"), sorted(three), strict=True)))
            .map(lambda bounds: Interval(**bounds))
        )
    if kind is Timing:
        pairs = BOUNDED[Count]
        return st.builds(Timing, seconds=of(Interval), comparisons=_comparisons(), pairs=pairs)
    fields = {name: _of_field(_declared(info)) for name, info in kind.model_fields.items()}
    if kind is Attempt:
        evaluated = {"candidate": of(Candidate), "evaluation": of(Evaluation), "failure": st.none()}
        failed = {"candidate": st.none(), "evaluation": st.none(), "failure": of(GenerationFailure)}
        alone = {"rival": st.none(), "head_to_head": st.none()}
        beside = {"rival": BOUNDED[Count], "head_to_head": of(HeadToHead)}
        return (
            st.builds(Attempt, **fields | evaluated | alone)
            | st.builds(Attempt, **fields | evaluated | beside)
            | st.builds(Attempt, **fields | failed | alone)
        )
    if kind is Correct:
        timed, emulated = {"timing": of(Timing), "untimed": st.none()}, {"timing": st.none(), "untimed": st.text()}
        return st.builds(Correct, **fields | timed) | st.builds(Correct, **fields | emulated)
    if kind is EvaluationPolicy:
        fields |= {rule: st.sampled_from(names) for rule, names in CHOICES.items()}
    if kind is Proof:
        return st.builds(_proof, of(Problem), of(Candidate), of(Evaluation))
    return st.builds(kind, **fields)


def _of_field(annotation: Any) -> st.SearchStrategy[Any]:
    """Two of a kind are as telling as many, which take most of the time to draw."""
    if annotation in BOUNDED:
        return BOUNDED[annotation]
    match get_origin(annotation), get_args(annotation):
        case type() as origin, (one, _) if origin is tuple and get_args(annotation)[1] is ...:
            return st.lists(_of_field(one), max_size=2).map(tuple)
        case type() as origin, (key, value) if issubclass(origin, Mapping):
            return st.dictionaries(st.from_type(key), _of_field(value), max_size=2)
        case _, (one, other) if one in BOUNDED and other is type(None):
            return st.none() | BOUNDED[one]
    return st.from_type(annotation)


def _declared(info: FieldInfo) -> Any:
    """The type of a field as it was written, with its bounds."""
    return Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation


def _comparisons() -> st.SearchStrategy[tuple[Comparison, ...]]:
    """Eager, and then perhaps the other baseline."""
    eager, compiled = (
        of(Comparison).map(lambda one, name=name: one.model_copy(update={"baseline": name}))
        for name in ("eager", "compile")
    )
    return st.tuples(eager) | st.tuples(eager, compiled)


def _proof(problem: Problem, candidate: Candidate, evaluation: Evaluation) -> Proof:
    """The three put together as they belong: the receipt names the other two."""
    receipt = evaluation.receipt.model_copy(update={"problem": problem.digest, "candidate": candidate.digest})
    return Proof(problem=problem, candidate=candidate, evaluation=evaluation.model_copy(update={"receipt": receipt}))


st.register_type_strategy(float, NUMBERS)
for kind in KINDS:
    st.register_type_strategy(kind, of)


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(data=st.data())
def test_every_record_survives_json_and_pickle_and_is_strict_frozen_and_closed(
    kind: type[Record], data: st.DataObject
) -> None:
    """All of it of the same record: nine tenths of the time is drawing one."""
    record = data.draw(st.from_type(kind))
    survives_json_and_pickle(kind, record)
    is_strict_json_without_empty_fields(record)
    is_frozen_and_closed(kind, record)


def survives_json_and_pickle(kind: type[Record], record: Record) -> None:
    assert kind.from_json(record.to_json()) == record
    assert kind.from_json(record.to_json(indent=2)) == record
    assert kind.from_json(record.to_json()).digest == record.digest
    assert pickle.loads(pickle.dumps(record)) == record
    assert kind.model_validate(as_json(record)) == record


def is_strict_json_without_empty_fields(record: Record) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    plain = json.loads(record.to_json(), parse_constant=refuse)
    assert None not in plain.values()


def is_frozen_and_closed(kind: type[Record], record: Record) -> None:
    for name in kind.model_fields:
        with pytest.raises(ValidationError):
            setattr(record, name, getattr(record, name))
    with pytest.raises(ValidationError):
        kind.model_validate(as_json(record) | {"invented": 1})


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(data=st.data())
def test_a_digest_is_the_content_and_nothing_else(kind: type[Record], data: st.DataObject) -> None:
    one, other = data.draw(st.from_type(kind)), data.draw(st.from_type(kind))
    name = data.draw(st.sampled_from(sorted(kind.model_fields)))
    changed = one.model_copy(update={name: getattr(other, name)})
    same = name in kind.not_identity or getattr(one, name) == getattr(other, name)
    assert (changed.digest == one.digest) == same


# --- digests ------------------------------------------------------------------------------------------------


def test_a_digest_is_the_same_on_every_machine_and_in_every_release() -> None:
    # Caches, recorded exchanges and old runs are keyed by these: a change here orphans them all.
    assert (
        Problem(name="x", source="class Model: ...").digest
        == "7cadd355666bdc3ff83180b84be44becb4e2904a01f92da1ada8fed4ca7df98a"
    )
    assert (
        Candidate(source="class ModelNew: ...", platform="null").digest
        == "1f6c159438519c03888d5115fbc41fb818f7cc374c840c2f601a0468596186b3"
    )


def test_a_digest_does_not_depend_on_the_process() -> None:
    code = (
        "from kforge.records import Receipt; print(Receipt(problem='p', candidate='c', platform='n', precision='s',"
        " seed='0', device='d', versions={'b': '2', 'a': '1'}, sandbox='none', timer='t').digest)"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_a_digest_does_not_depend_on_the_order_of_a_mapping() -> None:
    facts: dict[str, Any] = {
        "problem": "p", "candidate": "c", "platform": "n", "precision": "s", "seed": "0", "device": "d",
        "sandbox": "none", "timer": "t",
    }  # fmt: skip
    one = Receipt(**facts, versions={"a": "1", "b": "2"})
    assert one.digest == Receipt(**facts, versions={"b": "2", "a": "1"}).digest


def test_a_name_or_a_place_is_not_part_of_a_problem() -> None:
    problem = Problem(name="x", source="s", state_digest="d", state_path="/here")
    assert problem.digest == Problem(name="y", source="s", state_digest="d", state_path="/there").digest
    assert problem.digest != Problem(name="x", source="s", state_digest="e", state_path="/here").digest


def test_kinds_with_the_same_content_differ() -> None:
    class Other(Candidate):
        pass

    assert Candidate(source="s", platform="p").digest != Other(source="s", platform="p").digest


# --- verdicts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", VERDICTS)
@FEW
@given(data=st.data())
def test_a_verdict_comes_back_as_its_own_kind(kind: type[Record], data: st.DataObject) -> None:
    verdict = data.draw(st.from_type(kind))
    again = VERDICT.validate_json(verdict.to_json())
    assert type(again) is kind
    assert again == verdict


@pytest.mark.parametrize("kind", [kind for kind in VERDICTS if kind is not Correct])
@FEW
@given(data=st.data())
def test_only_what_is_correct_has_a_timing(kind: type[Record], data: st.DataObject) -> None:
    failed, timing = as_json(data.draw(st.from_type(kind))), as_json(data.draw(st.from_type(Timing)))
    with pytest.raises(ValidationError):
        VERDICT.validate_python(failed | {"timing": timing})


@given(st.from_type(Correct), st.from_type(Timing))
def test_what_is_correct_has_a_timing_against_a_baseline_or_a_reason_why_not(correct: Correct, timing: Timing) -> None:
    facts = {name: value for name, value in as_json(correct).items() if name not in ("timing", "untimed")}
    timed = facts | {"timing": as_json(timing)}
    assert VERDICT.validate_python(timed).comparisons == timing.comparisons
    assert VERDICT.validate_python(facts | {"untimed": "emulated"}).comparisons == ()
    no_baseline = facts | {"timing": timed["timing"] | {"comparisons": []}}
    for broken in (facts, timed | {"untimed": "emulated"}, no_baseline):
        with pytest.raises(ValidationError):
            VERDICT.validate_python(broken)


def test_the_states_are_the_papers_and_one_for_cheats() -> None:
    states = [kind.model_fields["state"].default for kind in VERDICTS]
    assert states == [
        "generation_failure", "compilation_failure", "runtime_error", "mismatch", "rejected", "correct",
    ]  # fmt: skip
    with pytest.raises(ValidationError):
        VERDICT.validate_python({"state": "probably_fine", "reason": ""})


@given(st.from_type(Evaluation))
def test_an_evaluation_is_correct_exactly_when_its_verdict_is(evaluation: Evaluation) -> None:
    assert evaluation.correct is (evaluation.verdict if isinstance(evaluation.verdict, Correct) else None)


# --- numbers ------------------------------------------------------------------------------------------------


@given(*[BOUNDED[Positive]] * 3)
def test_an_interval_is_in_order(low: float, median: float, high: float) -> None:
    if low <= median <= high:
        assert Interval(median=median, low=low, high=high).median == median
    else:
        with pytest.raises(ValidationError, match="out of order"):
            Interval(median=median, low=low, high=high)


@pytest.mark.parametrize("name", ["median", "low", "high"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e308, 5e-324])
def test_an_interval_is_of_positive_finite_numbers(name: str, number: float) -> None:
    with pytest.raises(ValidationError, match="positive, finite number"):
        Interval(**{"median": 1.0, "low": 1.0, "high": 1.0} | {name: number})


@pytest.mark.parametrize("names", [("compile",), ("eager", "eager"), ("eager", "compile", "compile"), ("sun",)])
def test_comparisons_are_with_eager_first_and_each_baseline_once(names: tuple[str, ...]) -> None:
    one = Interval(median=1.0, low=1.0, high=1.0)
    each = {"identity": "", "seconds": 1.0, "speedup": one}
    with pytest.raises(ValidationError):
        Timing(seconds=one, comparisons=[{"baseline": name, **each} for name in names], pairs=1)


@pytest.mark.parametrize("count", [-1, LARGEST_COUNT + 1, 10**400])
def test_a_count_is_neither_negative_nor_huge(count: int) -> None:
    with pytest.raises(ValidationError):
        Usage.from_json(f'{{"requests": {count}}}')


def test_sums_of_the_largest_numbers_are_records_too() -> None:
    much = Usage(requests=LARGEST_COUNT, input_tokens=LARGEST_COUNT, output_tokens=LARGEST_COUNT, cost_usd=LARGEST)
    assert much + much == much
    for number in (SMALLEST, LARGEST):
        assert pooled([compared("eager", number, number, number)] * 3).speedup.median == pytest.approx(number)
    assert pooled([compared("compile", SMALLEST, 1.0, LARGEST)] * 3).speedup.high == pytest.approx(LARGEST)


@pytest.mark.parametrize(
    ("low", "high", "finding"),
    [
        (1.03, 1.5, "faster"),
        (WIN_BOUND, 1.5, "cannot tell"),
        (0.9, 1.1, "cannot tell"),
        (0.5, 1 / WIN_BOUND, "cannot tell"),
        (0.5, 0.97, "slower"),
    ],
)
def test_a_win_is_claimed_only_when_the_lower_bound_allows(low: float, high: float, finding: str) -> None:
    speedup = Interval(median=(low + high) / 2, low=low, high=high)
    assert Comparison(baseline="eager", identity="", seconds=1.0, speedup=speedup).finding == finding


def test_a_measured_infinity_or_nan_is_kept() -> None:
    for error in (math.inf, math.nan):
        mismatch = Mismatch(kind="numerical", reason="overflow", max_error=error, tolerance=1e-5)
        assert repr(Mismatch.from_json(mismatch.to_json())) == repr(mismatch)


COSTS = st.builds(
    Usage,
    requests=st.integers(0, 10), input_tokens=st.integers(0, 10), output_tokens=st.integers(0, 10),
    cost_usd=st.none() | st.integers(0, 10).map(float),
)  # fmt: skip


@given(COSTS, COSTS, COSTS)
def test_usages_add_up_and_an_unknown_price_is_not_zero(one: Usage, two: Usage, three: Usage) -> None:
    assert one + Usage() == one == Usage() + one
    assert (one + two) + three == one + (two + three)
    assert one + two == two + one
    assert ((one + two).cost_usd is None) == (one.cost_usd is None and two.cost_usd is None)


# --- attempts -----------------------------------------------------------------------------------------------


@given(st.from_type(Attempt), st.from_type(Candidate), st.from_type(GenerationFailure))
def test_an_attempt_has_one_outcome(attempt: Attempt, candidate: Candidate, failure: GenerationFailure) -> None:
    plain = {name: getattr(attempt, name) for name in Attempt.model_fields}
    evaluated = attempt.evaluation is not None
    for broken in (
        {"evaluation": None, "failure": None},
        {"failure": failure} if evaluated else {"candidate": candidate},
        {"candidate": None} if evaluated else {"failure": None},
    ):
        with pytest.raises(ValidationError):
            Attempt(**plain | broken)
    assert attempt.verdict == (attempt.evaluation.verdict if attempt.evaluation else attempt.failure)
    timed = isinstance(attempt.verdict, Correct) and attempt.verdict.timing is not None
    assert (attempt.speedup is not None) == (timed and attempt.unchanged is None)
    for broken in ({"rival": 0, "head_to_head": None}, {"rival": None, "head_to_head": HeadToHead(finding="slower")}):
        with pytest.raises(ValidationError):
            Attempt(**plain | broken)


# --- repetitions together ---------------------------------------------------------------------------------


def compared(baseline: str, *bounds: float, doubt: str | None = None) -> Comparison:
    low, middle, high = bounds
    speedup = Interval(median=middle, low=low, high=high)
    return Comparison(baseline=baseline, identity="", seconds=1.0, speedup=speedup, doubt=doubt)


def test_repetitions_are_surer_than_one_of_them() -> None:
    one = compared("eager", 1.0, 1.1, 1.21)
    together = pooled([one] * 4).speedup
    assert together.median == pytest.approx(1.1)
    assert together.low == pytest.approx(1.1 / 1.1**0.5)
    assert together.high == pytest.approx(1.1 * 1.1**0.5)
    assert (one.finding, pooled([one] * 4).finding) == ("cannot tell", "faster")
    assert pooled([one]).speedup.low == pytest.approx(one.speedup.low)


def test_what_repetitions_share_does_not_get_surer() -> None:
    one = compared("compile", 1.0, 1.1, 1.21)
    assert pooled([one] * 4).speedup.low == pytest.approx(1.0)


def test_luck_goes_both_ways() -> None:
    found = pooled([compared("eager", 1.0, 1.1, 1.21), compared("eager", 0.9 / 1.1, 0.9, 0.99)])
    assert found.speedup.median == pytest.approx((1.1 * 0.9) ** 0.5)
    assert found.finding == "cannot tell"


def test_a_disturbed_repetition_counts_only_where_all_were() -> None:
    disturbed, sure = compared("eager", 3.0, 3.1, 3.2, doubt="busy"), compared("eager", 1.0, 1.1, 1.21)
    assert pooled([disturbed, sure]).speedup.median == pytest.approx(1.1)
    assert pooled([disturbed, disturbed]).doubt == "busy"
