"""How values read on a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.records import (
    Correct,
    Mismatch,
    NotSanitized,
    Rejected,
    RuntimeFailure,
    SanitizedClean,
    SanitizerFinding,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.records import Attempt, Comparison, Interval, Receipt, Sanitization, Usage, Verdict
    from kforge.store import Outcome
    from kforge.suite import Result

BASELINES = {"eager": "eager", "compile": "torch.compile"}


def times(value: Interval) -> str:
    return f"{value.median:.2f}x ({value.low:.2f} to {value.high:.2f})"


def state(verdict: Verdict) -> str:
    return verdict.state.replace("_", " ")


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def against(comparison: Comparison) -> str:
    doubt = f" ({comparison.doubt})" if comparison.doubt else ""
    return f"{times(comparison.speedup)} against {comparison.baseline}: {comparison.finding}{doubt}"


def detail(verdict: Verdict) -> str:
    """What a reader wants to know about a verdict, in one line."""
    match verdict:
        case Correct():
            timing = verdict.timing
            return f"{times(timing.speedup)}, {duration(timing.seconds.median)}, error {verdict.max_error:.1e}"
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
    """What the device said about itself around the measurement; nothing where it says nothing."""
    for moment, values in receipt.conditions.items():
        yield f"device {moment}: " + ", ".join(f"{name} {value}" for name, value in values.items())


def attempt_state(attempt: Attempt) -> str:
    return "no kernel" if attempt.is_correct and attempt.unchanged is not None else state(attempt.verdict)


def attempt_detail(attempt: Attempt) -> str:
    if attempt.is_correct and attempt.unchanged is not None:
        return attempt.unchanged
    return detail(attempt.verdict)


def line(attempt: Attempt) -> str:
    return f"{attempt.index} {attempt.phase}: {attempt_state(attempt)}: {attempt_detail(attempt)}"


def replication(outcome: Outcome) -> Iterator[str]:
    for each in outcome.disproved:
        yield f"attempt {each.attempt} did not stay correct when it was evaluated again: {each.reason}"
    if outcome.replication is not None:
        speedups, (eager, *_) = outcome.replication.speedups, outcome.replication.comparisons
        yield (
            f"evaluated {len(speedups)} times more: {times(eager.speedup)} over eager, {eager.finding}; "
            f"worst {speedups[0]:.2f}x"
        )


def result(value: Result) -> str:
    """What became of one problem of a suite, in one line."""
    speedups = [f"{times(c.speedup)} over {BASELINES[c.baseline]}: {c.finding}" for c in value.comparisons]
    said = ", ".join(speedups) or value.reason or f"{value.attempts} attempts"
    return f"{value.name}: {value.state.replace('_', ' ')}, {said}, {value.seconds:.0f} s"


def cost(usage: Usage) -> str:
    tokens = f"{usage.requests} model calls, {usage.input_tokens + usage.output_tokens} tokens"
    return tokens if usage.cost_usd is None else f"{tokens}, ${usage.cost_usd:.4f}"
