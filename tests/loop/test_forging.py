"""When the loop stops, and how it goes on after something failed that was not the candidate."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.loop.scripts import ADVICE, ORIGINAL, PROGRAM, drive, open_judge, scripted, workshop

from kforge import platforms
from kforge.errors import WaitingForReplies
from kforge.evaluation import Judge
from kforge.loop import RunLimits, forge
from kforge.models.exchange import Exchange
from kforge.records import (
    Attempt,
    Candidate,
    Comparison,
    Correct,
    Evaluation,
    EvaluationLimits,
    EvaluationPolicy,
    GenerationFailure,
    HeadToHead,
    Interval,
    Receipt,
    Replication,
    RuntimeFailure,
    Timing,
    best_attempt,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kforge.store import RunFolder

# --- limits -----------------------------------------------------------------------------------------------


def failed(index: int = 0, **more: Any) -> Attempt:
    return Attempt(index=index, phase="functional", failure=GenerationFailure(reason="no code"), **more)


def correct(low: float, high: float, index: int = 0, doubt: str | None = None) -> Attempt:
    speedup = Interval(median=(low + high) / 2, low=low, high=high)
    eager = Comparison(baseline="eager", identity="torch", seconds=1.0, speedup=speedup, doubt=doubt)
    timing = Timing(seconds=speedup, comparisons=(eager,), pairs=20)
    receipt = Receipt(
        problem="p", candidate="c", platform="null", precision="strict", seed="0", device="d", versions={},
        sandbox="s", timer="t",
    )  # fmt: skip
    verdict = Correct(max_error=0.0, tolerance=1e-5, cases=20, timing=timing)
    return Attempt(
        index=index,
        phase="functional",
        candidate=Candidate(source="class ModelNew: ...\n", platform="null"),
        evaluation=Evaluation(verdict=verdict, receipt=receipt),
    )


def untimed(index: int = 0, unchanged: str | None = None) -> Attempt:
    attempt = correct(1.0, 1.0, index)
    assert attempt.evaluation is not None
    verdict = Correct(max_error=0.0, tolerance=1e-5, cases=20, untimed="emulated")
    evaluation = attempt.evaluation.model_copy(update={"verdict": verdict})
    return attempt.model_copy(update={"evaluation": evaluation, "unchanged": unchanged})


@pytest.mark.parametrize(
    ("limits", "attempts", "stopped"),
    [
        (RunLimits(1), [], None),
        (RunLimits(1), [failed()], "1 iteration done"),
        (RunLimits(3), [failed(0), correct(9, 9, 1)], None),
        (RunLimits(9, target_speedup=2.0), [correct(2.0, 3.0)], "target speedup 2 reached"),
        (RunLimits(9, target_speedup=2.0), [correct(1.9, 3.0)], None),
        (RunLimits(9, target_speedup=2.0), [correct(2.5, 3.0, doubt="a busy machine")], None),
        (RunLimits(9, target_speedup=0.5), [correct(0.9, 1.1)], None),
        (RunLimits(9, target_speedup=2.0), [correct(2.5, 3.0), failed(1)], "target speedup 2 reached"),
        (RunLimits(1, target_speedup=2.0), [correct(2.5, 3.0)], "target speedup 2 reached"),
        (RunLimits(9, target_speedup=2.0), [failed()], None),
        (RunLimits(9), [failed(), untimed(1)], "a program is correct, and its speed cannot be measured: emulated"),
        (
            RunLimits(9, target_speedup=2.0),
            [untimed()],
            "a program is correct, and its speed cannot be measured: emulated",
        ),
        (RunLimits(9), [untimed(unchanged="it is the original")], None),
        (RunLimits(9, budget_seconds=90), [], None),
        (RunLimits(9, budget_seconds=90), [failed(elapsed=50.0), failed(1, elapsed=89.0)], None),
        (
            RunLimits(9, budget_seconds=90),
            [failed(elapsed=50.0), failed(1, elapsed=90.0)],
            "budget spent: 1.5 minutes are over",
        ),
    ],
)
def test_limits(limits: RunLimits, attempts: list[Attempt], stopped: str | None) -> None:
    assert limits.reached(attempts) == stopped


def test_a_target_counts_only_when_the_repetitions_confirm_it() -> None:
    limits, chosen = RunLimits(9, target_speedup=2.0), correct(2.5, 3.0)
    stopped = limits.reached([chosen])
    assert stopped is not None

    def repeated(*given: Attempt) -> Replication:
        return Replication(evaluations=tuple(each.evaluation for each in given if each.evaluation))

    assert limits.confirmed(stopped, chosen, None) == stopped, "nothing was repeated, and nothing says otherwise"
    assert limits.confirmed(stopped, chosen, repeated(correct(2.4, 2.6), correct(2.3, 2.6))) == stopped
    once = "target speedup 2 reached in one evaluation, not confirmed by 2 further ones"
    assert limits.confirmed(stopped, chosen, repeated(correct(1.3, 1.4), correct(1.3, 1.5))) == once
    disturbed = correct(2.4, 2.6, doubt="a busy machine")
    assert limits.confirmed(stopped, chosen, repeated(disturbed, disturbed)) == once
    slower = correct(1.1, 1.2)
    assert limits.confirmed(stopped, slower, None) == "target speedup 2 reached by a program that did not stay correct"
    assert limits.confirmed(stopped, None, None) == "target speedup 2 reached by a program that did not stay correct"
    assert limits.confirmed("9 iterations done", slower, None) == "9 iterations done"


# --- the loop itself --------------------------------------------------------------------------------------

FICKLE = PROGRAM.replace(
    "\n\n\nclass",
    "\nfrom pathlib import Path\nfrom kforge.inline import configuration\n\n"
    "mark = configuration.current().cache_folder.parent / 'was_here'\n"
    "factor = 3 if mark.exists() else 2\nmark.touch()\n\n\nclass",
).format("factor * x")
"""Right in its first evaluation and wrong in later ones: it remembers in the folder of its builds."""


def test_the_best_is_evaluated_again(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    _, outcome = drive(run, workshop(run, judge, scripted(tmp_path, PROGRAM.format("2 * x"))), RunLimits(1))
    assert (outcome.best, outcome.disproved) == (0, ())
    assert outcome.replication is not None
    assert outcome.replication.failure is None
    assert len(outcome.replication.speedups) == 3
    evaluated = sum(sum(each.receipt.stages.values()) for each in outcome.replication.evaluations)
    assert outcome.seconds > run.attempts()[0].seconds + evaluated / 2, "the clock runs on while it is repeated"
    assert outcome.session_seconds == outcome.seconds
    seeds = {evaluation.receipt.seed for evaluation in outcome.replication.evaluations}
    first = run.attempts()[0].evaluation
    assert first is not None
    assert len(seeds | {first.receipt.seed}) == 4, "every evaluation has a secret of its own"


def test_the_original_module_unchanged_is_no_kernel(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    attempts, outcome = drive(run, workshop(run, judge, scripted(tmp_path, ORIGINAL)), RunLimits(1))
    assert [(attempt.verdict.state, attempt.speedup) for attempt in attempts] == [("correct", None)]
    assert attempts[0].unchanged == outcome.no_kernel == "the answer is the original module, unchanged"
    assert (outcome.best, outcome.replication, run.best(), run.best_path) == (None, None, None, None)


def test_the_original_module_is_started_from_and_a_slower_program_is_the_best(
    judge: Judge, run: RunFolder, tmp_path: Path
) -> None:
    model = scripted(tmp_path, ORIGINAL, ADVICE, PROGRAM.format("(x + x) + sum([0 * x] * 50)"))
    attempts, outcome = drive(run, workshop(run, judge, model), RunLimits(2, replications=0, roofline_share=9))
    assert [(attempt.phase, attempt.parent) for attempt in attempts] == [("functional", None), ("optimization", 0)]
    assert (outcome.best, outcome.no_kernel) == (1, None)


SLOW = PROGRAM.format("(x + x) + sum([0 * x] * 300)")


def test_only_what_is_faster_beside_the_best_replaces_it(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    answers = [SLOW, ADVICE, PROGRAM.format("2 * x"), ADVICE, SLOW, ADVICE, PROGRAM.format("2 * x")]
    limits = RunLimits(4, replications=0, roofline_share=9)
    attempts, outcome = drive(run, workshop(run, judge, scripted(tmp_path, *answers)), limits)
    assert [(attempt.rival, attempt.head_to_head and attempt.head_to_head.finding) for attempt in attempts] == [
        (None, None),
        (0, "faster"),
        (1, "slower"),
        (1, "undecided"),
    ]
    assert outcome.best == 1
    assert attempts[3].head_to_head is not None
    assert attempts[3].head_to_head.reason == "it is the same program"
    assert run.attempts() == tuple(attempts), "the findings are part of the record"


def test_a_finished_head_to_head_is_not_held_again(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    work = workshop(run, judge, scripted(tmp_path, SLOW, ADVICE, PROGRAM.format("2 * x")))
    known = HeadToHead(finding="undecided", reason="known before")
    with run.writing():
        loop = forge(run, work, RunLimits(2, replications=0, roofline_share=9))
        next(loop)
        run.put_stage(1, "against_0", known)
        assert next(loop).head_to_head == known
    assert best_attempt(run.attempts()) == run.attempts()[0]


def test_programs_that_lost_to_a_disproved_one_are_compared_again(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    fickle = FICKLE.replace("class ModelNew", "# another program, with builds of its own\nclass ModelNew")
    answers = [SLOW, ADVICE, fickle, ADVICE, PROGRAM.format("2 * x")]
    work = workshop(run, judge, scripted(tmp_path, *answers))
    with run.writing():
        loop = forge(run, work, RunLimits(3, replications=1, roofline_share=9))
        next(loop)
        run.put_stage(1, "against_0", HeadToHead(finding="faster"))
        next(loop)
        run.put_stage(2, "against_1", HeadToHead(finding="undecided"))
        next(loop)
        with pytest.raises(StopIteration) as end:
            next(loop)
    outcome = end.value.value
    assert [each.attempt for each in outcome.disproved] == [1]
    assert outcome.best == 2, "it was undecided against the program that is gone, and is faster than the first"


def test_what_does_not_stay_correct_is_not_reported(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    attempts, outcome = drive(run, workshop(run, judge, scripted(tmp_path, FICKLE)), RunLimits(1))
    assert attempts[0].verdict.state == "correct"
    assert outcome.best is None
    assert [(each.attempt, each.reason.partition(":")[0]) for each in outcome.disproved] == [(0, "mismatch")]
    assert run.best() is None
    assert run.best_path is None


def test_replications_that_were_finished_are_not_done_again(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    earlier = judge.evaluate(run.header.problem, Candidate(source="", platform="null"))
    work = workshop(run, judge, scripted(tmp_path, PROGRAM.format("2 * x")))
    loop = forge(run, work, RunLimits(1))
    with run.writing():
        next(loop)
        run.put_stage(0, "replication_1", earlier)
        with pytest.raises(StopIteration) as end:
            next(loop)
    assert end.value.value.replication is None
    assert [each.reason.partition(":")[0] for each in end.value.value.disproved] == [
        earlier.verdict.state.replace("_", " ")
    ]


OVERRUN = """```python
import torch
from torch import nn

from kforge import inline

library = inline.compile(r'''
#include <cstdint>
extern "C" void twice(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] + x[i] + (x[i + 1] == 12345.0f ? 1e-30f : 0.0f);
}
''')


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        library.twice(x, out, x.numel())
        return out
```"""
"""Right, as far as outputs show: it reads one element too many and makes nothing of it."""


@pytest.fixture(scope="module")
def cpu_judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    environment = {"PATH": os.environ["PATH"]}
    cache = tmp_path_factory.mktemp("cache")
    with Judge(
        platforms.find("cpu"),
        EvaluationPolicy(compile_baseline=False),
        cache=cache,
        environment=environment,
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        yield judge


@pytest.mark.slow
def test_what_would_be_best_is_sanitized_and_the_finding_is_its_verdict(
    run: RunFolder, cpu_judge: Judge, tmp_path: Path
) -> None:
    if isinstance(found := cpu_judge.platform.adapter.sanitizers(), platforms.NoSanitizer):
        pytest.skip(found.reason)
    model = scripted(tmp_path, OVERRUN, OVERRUN.replace("x[i + 1]", "x[i]"))
    attempts, outcome = drive(run, workshop(run, cpu_judge, model), RunLimits(2, replications=0))
    assert [attempt.verdict.state for attempt in attempts] == ["runtime_error", "correct"]
    assert "AddressSanitizer: heap-buffer-overflow" in getattr(attempts[0].verdict, "reason", "")
    assert attempts[1].phase == "functional", "the finding was handed to a repair"
    assert attempts[1].evaluation is not None
    assert "sanitized" in attempts[1].evaluation.labels
    assert (outcome.best, outcome.replication) == (1, None)


@pytest.mark.slow
def test_a_crash_is_told_with_the_line_of_the_kernel(run: RunFolder, cpu_judge: Judge, tmp_path: Path) -> None:
    if isinstance(found := cpu_judge.platform.adapter.sanitizers(), platforms.NoSanitizer):
        pytest.skip(found.reason)
    model = scripted(tmp_path, OVERRUN.replace("x[i + 1]", "x[i + (int64_t(1) << 40)]"))
    attempts, _ = drive(run, workshop(run, cpu_judge, model), RunLimits(1, replications=0))
    verdict = attempts[0].verdict
    assert isinstance(verdict, RuntimeFailure)
    assert verdict.reason.startswith("the process was killed by SIGSEGV; under ASan and UBSan of g++")
    assert "AddressSanitizer: SEGV, READ in twice" in verdict.reason
    assert "x[i + (int64_t(1) << 40)]" in verdict.log, "the kernel's line is quoted"


@pytest.mark.slow
def test_without_sanitizers_what_outputs_show_is_all_there_is(run: RunFolder, cpu_judge: Judge, tmp_path: Path) -> None:
    model = scripted(tmp_path, OVERRUN)
    attempts, _ = drive(run, workshop(run, cpu_judge, model), RunLimits(1, replications=0, sanitize=False))
    assert attempts[0].verdict.state == "correct"
    assert attempts[0].evaluation is not None
    assert "sanitized" not in attempts[0].evaluation.labels


def test_a_program_near_the_roofline_is_good_enough(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    work = workshop(run, judge, scripted(tmp_path, PROGRAM.format("2 * x")))
    attempts, outcome = drive(run, work, RunLimits(5, roofline_share=1e-9, replications=0))
    assert [attempt.verdict.state for attempt in attempts] == ["correct"]
    assert outcome.stopped.startswith("near the roofline: ")
    assert outcome.best == 0
    assert run.outcome() == outcome
    assert len(list(run.exchange.glob("*.reply.json"))) == 1, "nobody is asked how to improve it"


def test_an_evaluation_is_tried_again_when_the_referee_dies(run: RunFolder, tmp_path: Path) -> None:
    with open_judge(tmp_path / "cache") as judge:
        judge.warm()
        assert judge._referee is not None
        os.kill(judge._referee.pid, signal.SIGKILL)
        attempts, outcome = drive(run, workshop(run, judge, scripted(tmp_path, PROGRAM.format("3 * x"))), RunLimits(1))
    assert [attempt.verdict.state for attempt in attempts] == ["mismatch"]
    assert (outcome.stopped, outcome.best) == ("1 iteration done", None)


def test_a_finished_stage_is_not_done_again(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    earlier = judge.evaluate(run.header.problem, Candidate(source="", platform="null"))
    with run.writing():
        run.put_stage(0, "evaluation", earlier)
    attempts, _ = drive(run, workshop(run, judge, scripted(tmp_path, PROGRAM.format("2 * x"))), RunLimits(1))
    assert attempts[0].evaluation == earlier


def test_time_is_the_clocks_over_all_sessions(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    work = workshop(run, judge, scripted(tmp_path, *["no program", "none again"] * 2))
    began = time.monotonic()
    loop = forge(run, work, RunLimits(2, replications=0), began - 50.0)
    with run.writing():
        first = next(loop)
    assert first.seconds < 40 < 50 < first.elapsed
    _, outcome = drive(run, work, RunLimits(2, replications=0))
    assert outcome.session_seconds is not None
    assert outcome.session_seconds < 40
    assert outcome.seconds == pytest.approx(first.elapsed + outcome.session_seconds, abs=0.01)


def test_the_loop_stops_to_wait_and_the_run_stays_open(judge: Judge, run: RunFolder) -> None:
    with pytest.raises(WaitingForReplies) as waiting:
        drive(run, workshop(run, judge, "exchange"), RunLimits(1))
    (name,) = waiting.value.pending
    (asked,) = Exchange(run.exchange).questions()
    (run.exchange / f"{name}.reply.md").write_text(PROGRAM.format("x"))
    attempts, _ = drive(run, workshop(run, judge, "exchange"), RunLimits(1))
    assert [attempt.requests for attempt in attempts] == [(asked.request.identity,)]
