"""Verdicts, speedups, times and costs in words, the same on a screen and in a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.records import Correct, Mismatch, Rejected, RuntimeFailure, times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.records import Attempt, Comparison, Timing, Usage, Verdict

BASELINES = {"eager": "eager", "compile": "torch.compile"}
"""The baselines as users know them, by the names in records."""
NOT_MEASURED = "not measured"
"""The finding where nothing is known about the speed: the measurement is in doubt, or there was none."""
NOTHING = "–"  # noqa: RUF001 - a dash in the place of a number
"""Shown in tables where there is no number."""
FINDINGS = {"faster": "faster", "slower": "slower", "cannot tell": "cannot tell if faster"}
"""What a speedup shows, as the end of a sentence."""


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


def baselines_in_words(names: Sequence[str]) -> str:
    """Return what a speedup is over: one baseline, or for each problem the faster of several."""
    joined = " and ".join(BASELINES[name] for name in names)
    return f"the faster of {joined}" if len(names) > 1 else joined


def finding(comparison: Comparison) -> str:
    """Return what a speedup shows, as a word for tables: `faster`, `slower`, `cannot tell`, or `not measured` where
    the measurement is in doubt."""
    return comparison.finding if comparison.doubt is None else NOT_MEASURED


def figure(comparison: Comparison) -> str:
    """Describe a speedup in one line: the baseline, the interval, and what it shows."""
    speedup, baseline = comparison.speedup, BASELINES[comparison.baseline]
    if comparison.doubt is not None:
        return f"speedup over {baseline} not measured: {comparison.doubt}; {speedup.median:.2f}x seen"
    interval = f"(95 % interval {speedup.low:.2f} to {speedup.high:.2f})"
    return f"{speedup.median:.2f}x over {baseline} {interval}: {FINDINGS[comparison.finding]}"


def figures(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield a line for each comparison; one line for all where all are in doubt for the same reason."""
    doubts = {each.doubt for each in comparisons}
    if len(comparisons) > 1 and len(doubts) == 1 and None not in doubts:
        medians = ", ".join(f"{each.speedup.median:.2f}x over {BASELINES[each.baseline]}" for each in comparisons)
        yield f"speedup not measured: {doubts.pop()}; seen: {medians}"
    else:
        yield from map(figure, comparisons)


def pace(timing: Timing) -> str:
    """Describe how long a call takes. Where the measurement is in doubt, it is only what was seen."""
    said = f"{duration(timing.seconds.median)} a call"
    return f"{said} seen" if timing.comparisons[0].doubt is not None else said


def brief(comparison: Comparison) -> str:
    """Describe a speedup in a few words, with its 95 % interval."""
    baseline = BASELINES[comparison.baseline]
    if comparison.doubt is not None:
        return f"not measured over {baseline} (in doubt; {comparison.speedup.median:.2f}x seen)"
    return f"{times(comparison.speedup)} over {baseline}, {comparison.finding}"


def detail(verdict: Verdict) -> str:
    """Describe a verdict in one line."""
    match verdict:
        case Correct():
            timing = verdict.timing
            if timing is None:
                return f"not timed: {verdict.untimed}"
            return f"{brief(timing.comparisons[0])}, {pace(timing)}"
        case RuntimeFailure():
            return f"{verdict.fault.replace('_', ' ')}: {verdict.reason}"
        case Rejected():
            return f"{verdict.rule}: {verdict.reason}"
        case Mismatch(case=case) if case:
            return f"{verdict.reason} [{case}]"
    return verdict.reason


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
        return f"not measured (in doubt; {eager.speedup.median:.2f}x seen){head_to_head(attempt)}"
    return f"{times(eager.speedup)}, {eager.finding}{head_to_head(attempt)}"


def head_to_head(attempt: Attempt) -> str:
    """Describe how an attempt did against the best one before it, as an addition to a line; empty without a rival."""
    found = attempt.head_to_head
    return f"; against attempt {attempt.rival}: {found.in_words}" if found is not None else ""


def cost(usage: Usage) -> str:
    return f"{usage.requests} model calls, {usage.input_tokens + usage.output_tokens} tokens, {price(usage)}"


def price(usage: Usage) -> str:
    """Describe what calls cost. An unknown price is called unknown, and never shown as zero."""
    if usage.cost_usd is None:
        return "price unknown" if usage.requests else "free"
    # four digits after the point, and never a zero for what was not free
    known = f"${usage.cost_usd:.4f}" if usage.cost_usd >= 0.0001 or not usage.cost_usd else "under $0.0001"
    without = usage.calls_without_price
    return f"{known} and {without} call{'s' * (without > 1)} of unknown price" if without else known
