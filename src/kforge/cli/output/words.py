"""Formats values for the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.agents.analysis import IMAGES_NOT_SEEN
from kforge.records import (
    Correct,
    Mismatch,
    NotSanitized,
    Rejected,
    RuntimeFailure,
    SanitizedClean,
    SanitizerFinding,
    times,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.models import Question
    from kforge.records import Attempt, Comparison, Outcome, Receipt, Sanitization, Usage, Verdict
    from kforge.store import RunSummary
    from kforge.suite import ProblemResult

BASELINES = {"eager": "eager", "compile": "torch.compile"}
FINDINGS = {"faster": "faster", "slower": "slower", "cannot tell": "cannot tell if faster"}


def state(verdict: Verdict) -> str:
    return verdict.state.replace("_", " ")


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def clock(seconds: float) -> str:
    """Format the time that a person waited: `42 s`, `5 min 3 s`, `1 h 12 min`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def figure(comparison: Comparison) -> str:
    """Describe a speedup in one line: the baseline, the interval, and what it shows."""
    speedup, baseline = comparison.speedup, BASELINES[comparison.baseline]
    if comparison.doubt is not None:
        return f"speedup over {baseline} not measured: {comparison.doubt}; {speedup.median:.2f}x seen"
    interval = f"(95 % interval {speedup.low:.2f} to {speedup.high:.2f})"
    return f"{speedup.median:.2f}x over {baseline} {interval}: {FINDINGS[comparison.finding]}"


def figures(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield a line for each comparison; one line for all where the same cause disturbed all of them."""
    doubts = {each.doubt for each in comparisons}
    if len(comparisons) > 1 and len(doubts) == 1 and None not in doubts:
        medians = ", ".join(f"{each.speedup.median:.2f}x over {BASELINES[each.baseline]}" for each in comparisons)
        yield f"speedup not measured: {doubts.pop()}; seen: {medians}"
    else:
        yield from map(figure, comparisons)


def brief(comparison: Comparison) -> str:
    """Describe a speedup in a few words, with its 95 % interval."""
    baseline = BASELINES[comparison.baseline]
    if comparison.doubt is not None:
        return f"not measured over {baseline} (disturbed; {comparison.speedup.median:.2f}x seen)"
    return f"{times(comparison.speedup)} over {baseline}, {comparison.finding}"


def detail(verdict: Verdict) -> str:
    """Describe a verdict in one line."""
    match verdict:
        case Correct():
            timing = verdict.timing
            if timing is None:
                return f"not timed: {verdict.untimed}"
            return f"{brief(timing.comparisons[0])}, {duration(timing.seconds.median)} a call"
        case RuntimeFailure():
            return f"{verdict.fault.replace('_', ' ')}: {verdict.reason}"
        case Rejected():
            return f"{verdict.rule}: {verdict.reason}"
        case Mismatch(case=case) if case:
            return f"{verdict.reason} [{case}]"
    return verdict.reason


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


def attempt_state(attempt: Attempt) -> str:
    return "no kernel" if attempt.is_correct and attempt.unchanged is not None else state(attempt.verdict)


def attempt_detail(attempt: Attempt) -> str:
    """Describe an attempt for a table whose heading says that speedups are over eager."""
    if attempt.is_correct and attempt.unchanged is not None:
        return attempt.unchanged
    if not isinstance(attempt.verdict, Correct):
        return detail(attempt.verdict)
    if attempt.untimed is not None:
        return "not timed"
    eager = attempt.comparisons[0]
    if eager.doubt is not None:
        return f"not measured (disturbed; {eager.speedup.median:.2f}x seen){head_to_head(attempt)}"
    return f"{times(eager.speedup)}, {eager.finding}{head_to_head(attempt)}"


def head_to_head(attempt: Attempt) -> str:
    """Describe how an attempt did against the best one before it, as an addition to a line; empty without a rival."""
    found = attempt.head_to_head
    return f"; against attempt {attempt.rival}: {found.in_words}" if found is not None else ""


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
    pace = f"{duration(timing.seconds.median)} a call" if timing is not None else f"not timed: {verdict.untimed}"
    return f"correct: {verdict.cases} cases, {error}; {pace}"


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
    yield f"  {duration(reported.timing.seconds.median)} a call"
    again = outcome.replication if outcome is not None else None
    if again is None:
        yield "  from the one evaluation by which it was chosen"
        return
    count = len(again.speedups)
    evaluations = f"{count} further evaluation{'s' * (count > 1)} by fresh processes"
    if 0 < again.disturbed < count:
        evaluations = f"{count - again.disturbed} of {evaluations}; the others were disturbed, and are left out"
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
        return f"speedup not measured (disturbed; {run.speedup.median:.2f}x over eager seen)"
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
    """Like `result`, with every figure on a separate line."""
    state = value.state.replace("_", " ")
    yield f"{value.name}: {state}{f': {value.reason}' if value.reason else ''}, {clock(value.seconds)}"
    for said in figures(value.comparisons):
        yield f"  {said}"


def cost(usage: Usage) -> str:
    return f"{usage.requests} model calls, {usage.input_tokens + usage.output_tokens} tokens, {price(usage)}"


def price(usage: Usage) -> str:
    """Describe what calls cost. A price that is not known is said as such, and never as zero."""
    if usage.cost_usd is None:
        return "price unknown" if usage.requests else "free"
    # four digits after the point, and never a zero for what was not free
    known = f"${usage.cost_usd:.4f}" if usage.cost_usd >= 0.0001 or not usage.cost_usd else "under $0.0001"
    without = usage.calls_without_price
    return f"{known} and {without} call{'s' * (without > 1)} of unknown price" if without else known
