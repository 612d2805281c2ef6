"""Receipts that were forged: each figure is held against the others, and against a measurement. (cause: receipts)"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.cli import receipts
from kforge.cli.verifying import compare, difference
from kforge.errors import InputError
from kforge.evaluation.baselines import compiled_as, identity
from kforge.evaluation.constants import STATISTICS
from kforge.evaluation.timing.pairs import PairedSamples
from kforge.records import (
    Attempt,
    Candidate,
    Comparison,
    Correct,
    Evaluation,
    Interval,
    Outcome,
    Problem,
    Proof,
    Receipt,
    Replication,
    TensorSpec,
    Timing,
    Usage,
    Workload,
)
from kforge.store import Header, Key, RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RunKforge

PROBLEM = Problem(name="p", source="p")
CANDIDATE = Candidate(source="c", platform="forest")
RATIOS = (1.2, 1.25, 1.3, 1.3, 1.3, 1.35, 1.4)
SUMMARY = [[1.3, 0.9081, 1.4675], [1.3, 1.2745, 1.3684], [1.0, 1.0, 1.0]]
"""Median, low and high of a speedup, of one by paced blocks, and of seconds a call."""


def interval(median: float, low: float, high: float) -> Interval:
    return Interval(median=median, low=low, high=high)


def evaluation(**changes: Any) -> Evaluation:
    """An evaluation whose figures agree: 1.3x over eager, 1.1x over torch.compile."""
    said: dict[str, Any] = {
        "eager": interval(1.3, 1.25, 1.35), "compile": interval(1.1, 1.0, 1.2), "seconds": 0.01, "eager_seconds": 0.013,
        "pairs": len(RATIOS), "ratios": RATIOS, "max_error": 1e-6, "precision": "strict", "cases": 20,
        "statistics": STATISTICS,
        "identity": identity(compiled_as("default"), torch_version="2", threads=2, precision="strict"), **changes,
    }  # fmt: skip
    candidate = tuple(0.01 for _ in said["ratios"])
    comparisons = (
        Comparison(baseline="eager", identity="", seconds=said["eager_seconds"], speedup=said["eager"]),
        Comparison(baseline="compile", identity=said["identity"], seconds=0.011, speedup=said["compile"]),
    )
    seconds = said["seconds"]
    timing = Timing(
        seconds=interval(seconds, seconds * 0.99, seconds * 1.01), comparisons=comparisons, pairs=said["pairs"]
    )
    receipt = Receipt(
        problem=PROBLEM.digest, candidate=CANDIDATE.digest, platform="forest", precision=said["precision"], seed="s",
        device="here", versions={}, sandbox="none", timer="clock", statistics=said["statistics"],
        samples={
            "eager": tuple(one * ratio for one, ratio in zip(candidate, said["ratios"], strict=True)),
            "candidate": candidate,
        },
    )  # fmt: skip
    verdict = Correct(max_error=said["max_error"], tolerance=1e-5, cases=said["cases"], timing=timing)
    return Evaluation(verdict=verdict, receipt=receipt)


def test_an_honest_receipt_does_not_contradict_itself() -> None:
    assert receipts.contradictions(evaluation()) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"eager": interval(500.0, 499.0, 501.0)}, "claims 500.00x over eager, and its own samples say 1.30x"),
        ({"eager": interval(1.3, 0.5, 500.0)}, "reaches beyond its own samples, 1.20 to 1.40"),
        ({"eager": interval(0.3, 0.2, 0.4)}, "its own samples say 1.30x"),
        ({"compile": interval(500.0, 499.0, 501.0)}, "500.00x over torch.compile, and its own seconds say 1.10x"),
        ({"seconds": 1e-9}, "claims 1 ns a call, and its own samples say 10 ms"),
        ({"eager_seconds": 1.3}, "claims 1.3 s a call of eager, and its own samples say 13 ms"),
        ({"pairs": 700}, "7 and 7 samples of 700 pairs"),
        ({"ratios": (), "pairs": 0}, "counts 20 cases and 0 pairs"),
        ({"max_error": 1.0}, "largest error 1.0e+00 is above the 1.0e-05 allowed"),
        ({"max_error": math.nan}, "largest error is nan"),
        ({"cases": 0}, "counts 0 cases"),
    ],
)
def test_a_forged_figure_contradicts_the_others(changes: dict[str, Any], said: str) -> None:
    assert said in "; ".join(receipts.contradictions(evaluation(**changes)))


@pytest.mark.parametrize("kind", ["eager", "candidate one by one", "foreign load", "a new kind"])
def test_more_samples_than_any_evaluation_takes_are_a_contradiction(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cause: they were resampled before anybody was asked, which took all memory of the machine."""
    honest = evaluation()
    monkeypatch.setattr("kforge.evaluation.timing.pairs.PairedSamples", None)  # nothing is computed from them
    samples = honest.receipt.samples | {kind: (0.01,) * (receipts.MOST_SAMPLES + 1)}
    told = honest.model_copy(update={"receipt": honest.receipt.model_copy(update={"samples": samples})})
    assert "kforge takes at most 1000 pairs" in "; ".join(receipts.contradictions(told))


def test_more_paced_samples_than_any_evaluation_takes_are_a_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cause: 4,000 of them took half a minute to recompute."""
    honest = evaluation()
    monkeypatch.setattr("kforge.evaluation.timing.pairs.PairedSamples", None)
    many = (0.01,) * (receipts.MOST_PACED_SAMPLES + 1)
    samples = honest.receipt.samples | {"eager one by one": many, "candidate one by one": many}
    told = honest.model_copy(update={"receipt": honest.receipt.model_copy(update={"samples": samples})})
    assert "kforge takes at most 200 pairs of them" in "; ".join(receipts.contradictions(told))


def test_figures_are_recomputed_until_they_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cause: an honest claim was recomputed four times, for each way in which it could have come about."""
    times, against = [], receipts._against
    monkeypatch.setattr(receipts, "_against", lambda *given: times.append(1) or against(*given))
    assert receipts.contradictions(evaluation()) == []
    assert len(times) == 1


@pytest.mark.parametrize("statistics", [None, 0, STATISTICS + 1])
def test_a_summary_by_other_statistics_is_not_recomputed_and_that_is_said(statistics: int | None) -> None:
    """Cause: where the statistics had changed since, an honest receipt was said to contradict itself."""
    other = {"statistics": statistics}
    told = evaluation(eager=interval(1.1, 1.0, 1.2), **other)  # what these samples once said
    assert receipts.contradictions(told) == []
    (said,) = receipts.not_recomputed((evaluation(), told))
    assert "cannot be recomputed" in said
    assert "\n" not in said
    # what no statistics can change is still looked at
    for forged in ({"max_error": 1.0}, {"pairs": 700}, {"compile": interval(500.0, 499.0, 501.0)}):
        assert receipts.contradictions(evaluation(**other, **forged))


def test_a_summary_by_these_statistics_is_recomputed() -> None:
    assert receipts.not_recomputed((evaluation(),)) == ()
    assert receipts.contradictions(evaluation(eager=interval(500.0, 499.0, 501.0)))


def test_a_receipt_from_before_statistics_had_a_version_is_read_as_it_was() -> None:
    document = json.loads(evaluation(statistics=None).receipt.to_json())
    assert "statistics" not in document
    assert json.loads(Receipt.from_json(json.dumps(document)).to_json()) == document


def test_the_version_of_the_statistics_is_raised_when_they_change() -> None:
    """If this fails, a speedup now comes from samples in another way: raise STATISTICS, and then change these."""
    samples = PairedSamples(
        baseline=[1.3, 1.25, 1.2, 1.4, 1.35, 1.3, 9.0],
        candidate=[1.0] * 6 + [5.0],
        charges=[0.2, 0.1, 0.2, 0.3, 0.2, 0.1, 0.0],
        foreign=[0.0] * 7,
        paced=[(1.4, 1.1), (1.5, 1.2), (1.45, 1.1)],
        around=0.01,
        around_paced=0.02,
        looks=2,
    )
    found = samples.speedup(0.01), samples.one_by_one, samples.candidate_seconds()
    figures = [[round(number, 4) for number in (each.median, each.low, each.high)] for each in found if each]
    assert (STATISTICS, figures) == (4, SUMMARY)


def test_as_many_samples_as_an_evaluation_takes_are_compared() -> None:
    """An honest near miss."""
    ratios = (*RATIOS,) * 142
    assert receipts.contradictions(evaluation(ratios=ratios, pairs=len(ratios))) == []


@pytest.mark.parametrize("looks", [1, 2])
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=12))
def test_the_interval_of_few_and_very_different_pairs_is_as_wide_as_it_is_recomputed(
    looks: int, ratios: list[float]
) -> None:
    """An honest near miss: with a second look the interval may be wider than all ratios of its pairs."""
    samples = PairedSamples(baseline=[0.01 * each for each in ratios], candidate=[0.01] * len(ratios), looks=looks)
    honest = evaluation(
        ratios=ratios,
        pairs=len(ratios),
        eager=samples.speedup(),
        eager_seconds=samples.baseline_seconds(),
        seconds=samples.candidate_seconds().median,
    )
    assert receipts.contradictions(honest) == []


def test_pairs_that_were_timed_on_a_busy_machine_do_not_count() -> None:
    """An honest near miss: the claim is of the quiet pairs, and the others say something else."""
    ratios = (*RATIOS, *RATIOS, *RATIOS, *(5.0 for _ in range(30)))
    told = evaluation(ratios=ratios, pairs=len(ratios))
    assert receipts.contradictions(told)
    samples = told.receipt.samples | {"foreign load": (0.0,) * (3 * len(RATIOS)) + (0.9,) * 30}
    quiet = told.model_copy(update={"receipt": told.receipt.model_copy(update={"samples": samples})})
    assert receipts.contradictions(quiet) == []


def under_load(told: Evaluation, foreign: float, doubt: str | None, labels: tuple[str, ...] = ()) -> Evaluation:
    """Return the evaluation with this foreign load in each pair, and this doubt about each speedup."""
    samples = told.receipt.samples | {"foreign load": (foreign,) * len(told.receipt.samples["eager"])}
    assert told.correct is not None
    assert told.correct.timing is not None
    timing = told.correct.timing
    comparisons = tuple(each.model_copy(update={"doubt": doubt}) for each in timing.comparisons)
    verdict = told.correct.model_copy(update={"timing": timing.model_copy(update={"comparisons": comparisons})})
    receipt = told.receipt.model_copy(update={"samples": samples})
    return told.model_copy(update={"verdict": verdict, "receipt": receipt, "labels": labels})


@pytest.mark.parametrize(
    ("foreign", "doubt", "labels", "contradicts"),
    [
        (0.44, "other processes used 44% of the machine during timing", ("busy_machine",), False),
        (0.44, None, ("busy_machine",), True),
        (0.44, None, (), True),
        (0.15, None, ("busy_machine",), True),
        (0.15, None, (), False),
        (0.05, None, ("busy_machine",), False),
    ],
    ids=["told", "removed", "removed with its label", "half as busy", "perhaps not busy", "all pairs are quiet"],
)
def test_a_doubt_that_was_removed_contradicts_the_load_of_others(
    foreign: float, doubt: str | None, labels: tuple[str, ...], contradicts: bool
) -> None:
    found = receipts.contradictions(under_load(evaluation(), foreign, doubt, labels))
    assert ("it claims a speedup without a doubt" in "; ".join(found)) is contradicts


def test_a_doubt_that_was_removed_contradicts_paced_blocks() -> None:
    """The program is at 8x in blocks, and at 1x where its calls come one by one."""
    told = one_by_one(interval(1.0, 0.95, 1.05), 0.08, alone=1.0)
    assert "it claims a speedup without a doubt" in "; ".join(receipts.contradictions(told))


def one_by_one(claimed: Interval, seconds: float, alone: float = 1.5) -> Evaluation:
    """Of a program that is at 8x in blocks, and at `alone` where its calls come one by one."""
    told = evaluation(
        ratios=(8.0,) * 7, eager=claimed, seconds=seconds, eager_seconds=0.08, compile=interval(0.2, 0.1, 0.3)
    )
    paced = {"eager one by one": (0.081,) * 4, "candidate one by one": (0.001 + 0.08 / alone,) * 4}
    return told.model_copy(
        update={"receipt": told.receipt.model_copy(update={"samples": told.receipt.samples | paced})}
    )


def test_the_figure_of_paced_blocks_is_recomputed_from_them() -> None:
    assert receipts.contradictions(one_by_one(interval(1.5, 1.45, 1.55), 0.08 / 1.5)) == []
    forged = receipts.contradictions(one_by_one(interval(8.0, 7.9, 8.1), 0.01))
    assert "claims 8.00x over eager, and its own samples say 1.50x" in "; ".join(forged)


@pytest.mark.parametrize(
    ("claimed", "said"),
    [
        (interval(500.0, 499.0, 501.0), "the claim is higher than the measurement"),
        (interval(250.0, 0.5, 500.0), "the claim is higher than the measurement"),
        (interval(1.3, 0.5, 500.0), "the claimed interval is far wider than the measured one"),
        (interval(0.7, 0.6, 500.0), "the claim is lower than the measurement"),
        (interval(1.0, 0.99, 1.01), "the claim is lower than the measurement"),
        (interval(1.31, 1.26, 1.36), None),
        (interval(1.2, 1.0, 1.4), None),
        (interval(1.36, 1.31, 1.41), None),
    ],
)
def test_medians_are_compared_as_well_as_intervals(claimed: Interval, said: str | None) -> None:
    assert difference(claimed, interval(1.3, 1.25, 1.35)) == said


def test_a_call_that_takes_far_longer_than_claimed_is_a_difference() -> None:
    found = compare(evaluation(seconds=1e-5), evaluation())
    assert found.outcome == "does not agree"
    assert "10 µs a call is now 10 ms" in found.reasons


# --- files --------------------------------------------------------------------------------------------------


def test_a_receipt_is_ours_as_long_as_nothing_in_it_changes(tmp_path: Path) -> None:
    key = Key(tmp_path / "state")
    proof = receipts.signed(Proof(problem=PROBLEM, candidate=CANDIDATE, evaluation=evaluation()), key)
    text = proof.to_json(indent=2)
    assert receipts.read(text, "r", key).is_ours
    assert receipts.read(json.dumps(json.loads(text), sort_keys=True), "r", key).is_ours
    assert not receipts.read(text, "r", Key(tmp_path / "other")).is_ours
    document = json.loads(text)
    document["evaluation"]["labels"] = ["replicated"]
    assert not receipts.read(json.dumps(document), "r", key).is_ours
    # the last of two fields of one name would be read, so it is the one that must be signed
    doubled = '{"problem": {"name": "n", "source": "import os"},' + text.lstrip()[1:]
    assert receipts.read(doubled, "r", key).proof.problem == PROBLEM


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "it holds no JSON object"),
        ("[" * 100_000, "it is not JSON"),
        (
            Proof(problem=PROBLEM, candidate=CANDIDATE, evaluation=evaluation(precision="none")).to_json(),
            "unknown precision",
        ),
        (
            Proof(problem=PROBLEM, candidate=CANDIDATE, evaluation=evaluation(identity="[" * 100_000)).to_json(),
            r"no valid compile mode \(it is nested too deeply\); the receipt is damaged or was not made by kforge",
        ),
    ],
)
def test_what_is_no_receipt_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        receipts.read(text, "r.json", Key(tmp_path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("weights", [{"state_path": "/dev/zero"}, {"state_path": "w.pt", "state_digest": "d" * 64}])
def test_a_receipt_names_no_file_of_weights(tmp_path: Path, weights: dict[str, str]) -> None:
    """Cause: the path is no part of a problem's identity, so any file of the user's, or a pipe, would be opened."""
    problem = PROBLEM.model_copy(update=weights)
    honest = evaluation()
    receipt = honest.receipt.model_copy(update={"problem": problem.digest})
    told = Proof(problem=problem, candidate=CANDIDATE, evaluation=honest.model_copy(update={"receipt": receipt}))
    with pytest.raises(InputError, match="a file of weights"):
        receipts.read(told.to_json(), "r.json", Key(tmp_path))


SPEEDUP = ("evaluation", "verdict", "timing", "comparisons", 0, "speedup")
FIGURES = [
    ((*SPEEDUP, "median"), "NaN"),
    ((*SPEEDUP, "high"), "Infinity"),
    ((*SPEEDUP, "high"), 1e308),
    ((*SPEEDUP, "low"), -1.0),
    ((*SPEEDUP, "low"), 5e-324),
    ((*SPEEDUP[:-1], "seconds"), 0.0),
    ((*SPEEDUP[:-1], "baseline"), "the sun"),
    ((*SPEEDUP[:-2], 1, "baseline"), "eager"),
    (("evaluation", "verdict", "timing", "pairs"), -7),
    (("evaluation", "verdict", "cases"), 10**300),
    (("evaluation", "receipt", "samples", "eager"), [1.0, "Infinity"]),
    (("evaluation", "receipt", "stages"), {"timing": -1.0}),
]


@pytest.mark.parametrize(("where", "value"), FIGURES, ids=lambda each: str(each)[-40:])
def test_a_number_that_nothing_can_measure_is_refused_where_it_is_read(
    tmp_path: Path, where: tuple[Any, ...], value: Any
) -> None:
    """Cause: such numbers gave nonsense on the screen, or a traceback where something was computed from them."""
    document = json.loads(Proof(problem=PROBLEM, candidate=CANDIDATE, evaluation=evaluation()).to_json())
    place = document
    for name in where[:-1]:
        place = place[name]
    place[where[-1]] = value
    with pytest.raises(InputError, match="is not a receipt") as refused:
        receipts.read(json.dumps(document), "r.json", Key(tmp_path))
    assert "\n" not in str(refused.value)


def test_a_run_with_more_repetitions_than_can_be_recomputed_is_refused(tmp_path: Path) -> None:
    """Cause: the figures of each were recomputed before anybody was asked, and there could be any number of them."""
    spec = TensorSpec(shape=(1,), dtype="float32")
    header = Header.new(
        problem=PROBLEM, workload=Workload(inputs=(spec,), outputs=(spec,), parameters=(), flops=0, bytes_moved=1),
        platform="forest", model="exchange", analyst="exchange", options={},
    )  # fmt: skip
    run = RunFolder.create(tmp_path / "runs", header)
    told = evaluation()
    attempt = Attempt(index=0, phase="functional", candidate=CANDIDATE, evaluation=told, usage=Usage(requests=1))
    repeated = Replication(evaluations=(told,) * receipts.MOST_EVALUATIONS)
    with run.writing():
        run.commit(attempt)
        run.finish(Outcome(stopped="done", best=0, replication=repeated, usage=Usage(requests=1), seconds=1.0))
    with pytest.raises(InputError, match="holds 101 evaluations of its best program, and `verify` reads at most 100"):
        receipts.of_run(run, Key(tmp_path / "state"))


def test_a_receipt_with_more_samples_than_can_be_recomputed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause: each kind and each evaluation had a limit, and all together took minutes before anybody was asked."""
    told = evaluation()
    text = Proof(problem=PROBLEM, candidate=CANDIDATE, evaluation=told).to_json()
    held = sum(map(len, told.receipt.samples.values()))
    monkeypatch.setattr(receipts, "MOST_SAMPLES_IN_ALL", held)
    receipts.read(text, "r.json", Key(tmp_path))  # an honest near miss
    monkeypatch.setattr(receipts, "MOST_SAMPLES_IN_ALL", held - 1)
    with pytest.raises(InputError, match=f"holds {held} samples, and `verify` recomputes at most {held - 1}"):
        receipts.read(text, "r.json", Key(tmp_path))


@pytest.fixture
def receipt(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, candidate: Callable[..., str]
) -> Callable[..., Path]:
    """The receipt of an honest evaluation, as `edit` leaves it; it writes a file when its problem runs."""

    def make(edit: Callable[[dict[str, Any]], None] = lambda _: None) -> Path:
        (tmp_path / "program.py").write_text(candidate("torch.relu(x + self.shift)"))
        path = tmp_path / "receipt.json"
        ran = kforge_in_process(
            "eval", tiny, tmp_path / "program.py", "-p", "null", "--no-compile-baseline", "--receipt", path
        )
        assert ran.status == 0, ran.stderr
        document = json.loads(path.read_text())
        edit(document)
        path.write_text(json.dumps(document))
        return path

    return make


def test_a_receipt_that_was_just_written_needs_no_flag(kforge_in_process: RunKforge, receipt: Any) -> None:
    ran = kforge_in_process("verify", receipt(), "--json")
    document = json.loads(ran.stdout)
    assert ran.status in (0, 1, 3), ran.stderr  # a busy machine may disturb it
    assert {"claimed", "repeated", "program"} <= document.keys()


def test_a_forged_speedup_does_not_agree_and_nothing_is_run(kforge_in_process: RunKforge, receipt: Any) -> None:
    def forge(document: dict[str, Any]) -> None:
        timing = document["evaluation"]["verdict"]["timing"]
        timing["comparisons"][0]["speedup"] = {"median": 500.0, "low": 499.0, "high": 501.0}

    path = receipt(forge)
    ran = kforge_in_process("verify", path)
    assert ran.status == 1
    assert "does not agree: the claim contradicts itself: it claims 500.00x over eager" in ran.stdout
    assert "repeated" not in ran.stdout
    ran = kforge_in_process("verify", path, "--json")
    assert json.loads(ran.stdout)["agrees"] is False


def test_the_problem_of_a_receipt_of_others_runs_only_with_the_users_word(
    kforge_in_process: RunKforge, receipt: Any, tiny: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "ran"

    def plant(document: dict[str, Any]) -> None:
        # a worker, which times it as the baseline, cannot write there
        document["problem"]["source"] += f"\ntry:\n    open({str(trace)!r}, 'w')\nexcept OSError:\n    pass\n"
        digest = Problem.model_validate(document["problem"]).digest
        document["evaluation"]["receipt"]["problem"] = digest

    path = receipt(plant)
    ran = kforge_in_process("verify", path)
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "was not made by you on this machine" in ran.stderr
    assert "--trust" in ran.stderr
    shown = re.search(r"read (\S+\.py) first", ran.stderr)
    assert shown is not None
    assert Path(shown[1]).read_text() == json.loads(path.read_text())["problem"]["source"]
    ran = kforge_in_process("verify", path, "--problem", tiny)
    assert (ran.status, "differs from the file given with --problem" in ran.stderr) == (2, True)
    assert not trace.exists()
    (tmp_path / "same.py").write_text(json.loads(path.read_text())["problem"]["source"])
    ran = kforge_in_process("verify", path, "--problem", tmp_path / "same.py")
    assert ran.status in (0, 1, 3), ran.stderr
    assert trace.exists()
    trace.unlink()
    ran = kforge_in_process("verify", path, "--trust")
    assert ran.status in (0, 1, 3), ran.stderr
    assert trace.exists()


@pytest.mark.parametrize(("eager", "candidate"), [(5e-324, 1e300), (1e300, 5e-324)])
def test_samples_whose_ratio_is_no_number(eager: float, candidate: float) -> None:
    """Cause: the logarithm of such a ratio was a traceback ("math domain error")."""
    honest = evaluation()
    samples = {"eager": (eager,) * len(RATIOS), "candidate": (candidate,) * len(RATIOS)}
    told = honest.model_copy(update={"receipt": honest.receipt.model_copy(update={"samples": samples})})
    assert "or some are not valid times" in "; ".join(receipts.contradictions(told))


@pytest.mark.parametrize(
    "samples",
    [
        {"eager": (1e90,) * len(RATIOS), "candidate": (1e-90,) * len(RATIOS)},
        {"eager": (1e9,) * len(RATIOS), "candidate": (1e-12,) * len(RATIOS)},
        {"around a call": (1e99, 1e99)},
        {"around a call": (1e9, 1e9)},
        {"around a call": (-1.0, -1.0)},
        {"eager one by one": (1e-99,) * 5, "candidate one by one": (1e99,) * 5},
        {"eager one by one": (1e-12,) * 5, "candidate one by one": (1e9,) * 5},
        {"foreign load": (-1e99,) * len(RATIOS)},
    ],
)
def test_whatever_samples_a_receipt_holds_are_compared_without_a_failure(samples: dict[str, Any]) -> None:
    """Cause: an interval that was recomputed from such samples is none that a record allows."""
    honest = evaluation()
    receipt = honest.receipt.model_copy(update={"samples": honest.receipt.samples | samples})
    receipts.contradictions(honest.model_copy(update={"receipt": receipt}))  # does not raise
