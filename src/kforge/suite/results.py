"""Reads and caches the result of one problem of a suite, from the problem's folder."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kforge.errors import RunError
from kforge.metrics import (
    BROKEN,
    CORRECT,
    DISPROVED,
    NO_ATTEMPT,
    NO_KERNEL,
    UNFINISHED,
    WAITING,
    AttemptResult,
    ProblemResult,
)
from kforge.models import Exchange
from kforge.records import Usage

if TYPE_CHECKING:
    from kforge.models import Question
    from kforge.problems import Task
    from kforge.records import Attempt, Evaluation, Outcome
    from kforge.store import RunFolder, SuiteFolder

__all__ = [
    "BROKEN",
    "CORRECT",
    "DISPROVED",
    "NO_ATTEMPT",
    "NO_KERNEL",
    "UNFINISHED",
    "WAITING",
    "ProblemResult",
    "questions_of",
    "result_of",
    "result_of_run",
]


KEPT = "result"
"""Name of the file of derived facts in which the result of a finished run is kept."""


def questions_of(folder: SuiteFolder, task: Task) -> list[Question]:
    """Return the questions that the run of a problem has asked; none where it has not begun, or cannot be read."""
    with suppress(RunError):
        return Exchange(run.exchange).questions() if (run := folder.run_of(task)) is not None else []
    return []


def result_of(folder: SuiteFolder, task: Task) -> ProblemResult:
    """Return the state of a problem, from the suite's folder alone.

    The result of a finished run is kept, so that a suite of a thousand problems is shown without reading all attempts.
    """
    if (kept := folder.derived(task, KEPT, ProblemResult)) is not None:
        return kept.model_copy(update={"run": str(folder.run_path(task))})
    found = _read_result(folder, task)
    if found.is_done and found.state != BROKEN:
        folder.keep_derived(task, KEPT, found.model_copy(update={"run": None}))
    return found


def _read_result(folder: SuiteFolder, task: Task) -> ProblemResult:
    """Return the state of a problem, from all records of its run."""
    try:
        run, breakdown = folder.run_of(task), folder.breakdown_of(task)
        if run is None:
            found = ProblemResult(name=task.name, family=task.family, state=UNFINISHED)
        else:
            found = result_of_run(task.name, task.family, run)
    except RunError as error:
        return ProblemResult(name=task.name, family=task.family, state=BROKEN, reason=str(error))
    if breakdown is not None and not found.is_done:
        return found.model_copy(update={"state": BROKEN, "reason": f"{breakdown.kind}: {breakdown.reason}"})
    return found


def result_of_run(name: str, family: str, run: RunFolder) -> ProblemResult:
    """Return the state of a problem, from its run. Raises RunError if the run is damaged."""
    attempts, outcome, reported = run.attempts(), run.outcome(), run.reported()
    until_now = outcome.seconds if outcome is not None else attempts[-1].elapsed if attempts else 0.0
    found = ProblemResult(
        name=name, family=family, state=UNFINISHED, run=str(run.path), attempts=len(attempts), seconds=until_now,
        steps=tuple(map(_step, attempts)),
        usage=outcome.usage if outcome is not None else sum((each.usage for each in attempts), Usage()),
        device_seconds=sum(map(_device_seconds, attempts)) + _repetition_seconds(outcome),
        roofline=next((each.profile.roofline for each in attempts if each.profile is not None), None),
    )  # fmt: skip
    if outcome is None:
        waiting = [question.name for question in Exchange(run.exchange).waiting()]
        return found.model_copy(update={"state": WAITING, "reason": ", ".join(waiting)}) if waiting else found
    if reported is not None and reported.correct is not None:
        comparisons = reported.correct.comparisons
        update: dict[str, object] = {"state": CORRECT, "comparisons": comparisons, "labels": reported.labels}
        if reported.correct.timing is not None:
            update["program_seconds"] = reported.correct.timing.seconds.median
        if reported.correct.untimed is not None:
            update["reason"] = f"not timed: {reported.correct.untimed}"
        return found.model_copy(update=update)
    if outcome.no_kernel is not None:
        state, reason = NO_KERNEL, outcome.no_kernel
    elif outcome.disproved:
        state, reason = DISPROVED, outcome.disproved[-1].reason
    elif attempts:
        last = attempts[-1].verdict
        state, reason = last.state, getattr(last, "reason", "")
    else:
        state, reason = NO_ATTEMPT, outcome.stopped
    return found.model_copy(update={"state": state, "reason": reason})


def _step(attempt: Attempt) -> AttemptResult:
    return AttemptResult(
        state=NO_KERNEL if attempt.is_correct and not attempt.is_kernel else attempt.verdict.state,
        is_first=attempt.parent is None,
        usage=attempt.usage,
        elapsed=attempt.elapsed,
        device_seconds=_device_seconds(attempt),
    )


def _device_seconds(attempt: Attempt) -> float:
    """Return the seconds that the evaluation of an attempt took, and its head-to-head."""
    beside = attempt.head_to_head.spent if attempt.head_to_head is not None else 0.0
    return (_evaluation_seconds(attempt.evaluation) if attempt.evaluation is not None else 0.0) + beside


def _repetition_seconds(outcome: Outcome | None) -> float:
    """Return the seconds that the repeated evaluations of the best program took."""
    if outcome is None or outcome.replication is None:
        return 0.0
    return sum(map(_evaluation_seconds, outcome.replication.evaluations))


def _evaluation_seconds(evaluation: Evaluation) -> float:
    return sum(evaluation.receipt.stages.values())
