"""Formats values for the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.phrases import (
    BASELINES,
    attempt_detail,
    attempt_state,
    brief,
    clock,
    cost,
    detail,
    duration,
    figures,
    head_to_head,
    pace,
    price,
    state,
)
from kforge.records import NotSanitized, SanitizedClean, SanitizerFinding, times
from kforge.roles import IMAGES_NOT_SEEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.models import Question
    from kforge.records import Attempt, Comparison, Correct, Outcome, Receipt, Sanitization
    from kforge.store import RunSummary
    from kforge.suite import ProblemResult

__all__ = [
    "BASELINES",
    "attempt_detail",
    "attempt_state",
    "best",
    "brief",
    "clock",
    "conditions",
    "correctness",
    "cost",
    "detail",
    "disproofs",
    "duration",
    "ended",
    "figures",
    "line",
    "pace",
    "price",
    "remarks",
    "result",
    "result_lines",
    "sanitized",
    "state",
    "summary",
    "waiting",
]


def sanitized(sanitization: Sanitization) -> str:
    match sanitization.outcome:
        case SanitizedClean(sanitizer=sanitizer, cases=cases, not_run=not_run):
            silent = f"; not run: {'; '.join(not_run)}" if not_run else ""
            return f"sanitizer: clean ({sanitizer}, {cases} cases){silent}"
        case SanitizerFinding(failure=failure):
            return f"sanitizer: {state(failure)}: {detail(failure)}"
        case NotSanitized(reason=reason):
            return f"sanitizer: not run: {reason}"


def conditions(receipt: Receipt) -> Iterator[str]:
    """Describe what the device reported about itself around the measurement; empty where it reported nothing."""
    for moment, values in receipt.conditions.items():
        yield f"device {moment}: " + ", ".join(f"{name} {value}" for name, value in values.items())


def line(attempt: Attempt) -> str:
    state = attempt_state(attempt)
    if attempt.unchanged is not None:
        said = attempt_detail(attempt)
    else:
        said = detail(attempt.verdict) + (head_to_head(attempt) if attempt.is_correct else "")
    return f"{attempt.index} {attempt.phase}: {state}: {said}"


def remarks(attempts: Sequence[Attempt]) -> Iterator[str]:
    """Describe what was unusual about the agents' answers, a line for each remark."""
    if any(IMAGES_NOT_SEEN in attempt.evaluation.labels for attempt in attempts if attempt.evaluation is not None):
        yield "images not seen: the model of the performance analysis agent refuses them, and was given text"
    for attempt in attempts:
        yield from (f"attempt {attempt.index}: {remark}" for remark in attempt.remarks)


def correctness(verdict: Correct) -> str:
    """Describe what was checked, and how long a call takes where that was measured."""
    error = f"largest error {verdict.max_error:.1e} of {verdict.tolerance:.1e} allowed"
    timing = verdict.timing
    said = pace(timing) if timing is not None else f"not timed: {verdict.untimed}"
    return f"correct: {verdict.cases} cases, {error}; {said}"


def best(attempt: Attempt, reported: Correct, outcome: Outcome | None) -> Iterator[str]:
    """Describe the best program: its speed, and then how that was measured.

    `reported`: the attempt's verdict, with the result of its repetitions where there are some.
    """
    if reported.timing is None:
        yield f"best: attempt {attempt.index}, correct; not timed: {reported.untimed}"
        return
    yield _headline(attempt.index, reported.timing.comparisons[0])
    for said in figures(reported.timing.comparisons):
        yield f"  {said}"
    yield f"  {pace(reported.timing)}"
    again = outcome.replication if outcome is not None else None
    if again is None:
        yield "  from the one evaluation by which it was chosen"
        return
    count = len(again.speedups)
    evaluations = f"{count} further evaluation{'s' * (count > 1)} by fresh processes"
    if 0 < again.disturbed < count:
        evaluations = f"{count - again.disturbed} of {evaluations}; the others are in doubt, and left out"
    lowest = f"; lowest {again.lowest:.2f}x" if count - again.disturbed > 1 else ""
    yield f"  from {evaluations}{lowest}"
    yield f"  when it was chosen: {brief(attempt.comparisons[0])}"


def _headline(index: int, eager: Comparison) -> str:
    if eager.doubt is not None:
        return f"best: attempt {index}, correct; its speedup was not measured"
    match eager.finding:
        case "faster":
            return f"best: attempt {index}, faster than eager"
        case "slower":
            return f"no faster program found: the best correct one, attempt {index}, is slower than eager"
    return f"best: attempt {index}, correct; cannot tell whether it is faster than eager"


def disproofs(outcome: Outcome) -> Iterator[str]:
    for each in outcome.disproved:
        yield f"attempt {each.attempt} did not stay correct when it was evaluated again: {each.reason}"


def ended(outcome: Outcome) -> str:
    """Describe why a run stopped, what models cost, and how long it took."""
    parts = [outcome.stopped]
    if outcome.usage.requests:
        parts.append(cost(outcome.usage))
    session, since = outcome.session_seconds, ""
    if session is not None and outcome.seconds - session >= 1:
        since = f" in all, {clock(session)} since it was resumed"
    return "stopped: " + "; ".join([*parts, f"{clock(outcome.seconds)}{since}"])


def summary(run: RunSummary) -> str:
    """Describe the result of a run in a few words."""
    if run.no_kernel is not None:
        return "no kernel found"
    if run.speedup is None and run.doubt is not None:
        return "correct, not timed"
    if run.speedup is None:
        return "nothing correct" if run.status == "finished" else "nothing correct yet"
    if run.doubt is not None:
        return f"speedup not measured (in doubt; {run.speedup.median:.2f}x over eager seen)"
    return f"{times(run.speedup)} over eager, {run.finding}"


def waiting(questions: Sequence[Question]) -> str:
    """Describe what a run or suite waits for in a few words."""
    empty = sum(each.state == "empty reply" for each in questions)
    if len(questions) == 1:
        return f"waiting for the reply {questions[0].reply.name}{', which is empty' if empty else ''}"
    return f"waiting for {len(questions)} replies{f', of which {empty} are empty' if empty else ''}"


def result(value: ProblemResult) -> str:
    """Describe the result of one problem of a suite in one line."""
    said = "; ".join(map(brief, value.comparisons)) or value.reason or f"{value.attempts} attempts"
    return f"{value.name}: {value.state.replace('_', ' ')}, {said}, {clock(value.seconds)}"


def result_lines(value: ProblemResult) -> Iterator[str]:
    """Describe the result of one problem of a suite, with every figure on a separate line."""
    state = value.state.replace("_", " ")
    yield f"{value.name}: {state}{f': {value.reason}' if value.reason else ''}, {clock(value.seconds)}"
    for said in figures(value.comparisons):
        yield f"  {said}"
