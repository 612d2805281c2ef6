"""Reads the result of one problem of a suite from its folder."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kforge.errors import RunError
from kforge.models import Exchange
from kforge.records import Comparison, Record

if TYPE_CHECKING:
    from kforge.models import Question
    from kforge.problems import Task
    from kforge.store import RunFolder, SuiteFolder

CORRECT, NO_KERNEL, BROKEN, DISPROVED = "correct", "no_kernel", "broken", "disproved"
WAITING, UNFINISHED, NO_ATTEMPT = "waiting", "unfinished", "no_attempt"


class ProblemResult(Record):
    """The state of one problem of a suite, and how fast its best program is."""

    name: str
    family: str
    state: str
    """`correct`; `no_kernel` if only the original module, unchanged, was correct; `disproved` if no correct attempt
    stayed correct when it was evaluated again; the state of the last attempt if no attempt was correct; `no_attempt` if
    a recording had none; `broken`. Before the end: `waiting` for replies, or `unfinished`."""
    reason: str | None = None
    """Why the problem is broken, has no kernel, has no correct program, or has one that was not timed; or the questions
    that it waits for."""
    run: str | None = None
    """The run's folder. None if no run was begun."""
    attempts: int = 0
    seconds: float = 0.0
    """Wall-clock seconds of its run."""
    comparisons: tuple[Comparison, ...] = ()
    """Comparisons of the best program with the baselines: its repeated evaluations pooled, or its only evaluation."""
    labels: tuple[str, ...] = ()
    """Labels of the best program's evaluation."""

    @property
    def is_done(self) -> bool:
        return self.state not in (WAITING, UNFINISHED)

    @property
    def is_correct(self) -> bool:
        return self.state == CORRECT

    def against(self, baseline: str) -> Comparison | None:
        return next((each for each in self.comparisons if each.baseline == baseline), None)

    def is_faster(self, baseline: str) -> bool:
        """Return whether the best program is proven faster than this baseline."""
        comparison = self.against(baseline)
        return comparison is not None and comparison.finding == "faster"


def questions_of(folder: SuiteFolder, task: Task) -> list[Question]:
    """Return the questions that the run of a problem has asked; none where it has not begun, or cannot be read."""
    with suppress(RunError):
        return Exchange(run.exchange).questions() if (run := folder.run_of(task)) is not None else []
    return []


def result_of(folder: SuiteFolder, task: Task) -> ProblemResult:
    """Return the state of a problem, from the suite's folder alone."""
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
        name=name, family=family, state=UNFINISHED, run=str(run.path), attempts=len(attempts), seconds=until_now
    )
    if outcome is None:
        waiting = [question.name for question in Exchange(run.exchange).waiting()]
        return found.model_copy(update={"state": WAITING, "reason": ", ".join(waiting)}) if waiting else found
    if reported is not None and reported.correct is not None:
        comparisons = reported.correct.comparisons
        update = {"state": CORRECT, "comparisons": comparisons, "labels": reported.labels}
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
