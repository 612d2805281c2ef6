"""Describes earlier attempts for prompts: a line for each, and the changes of rewrites that were slower."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from kforge.problems.inputs.in_words import explained
from kforge.profiling.wording import cut, time
from kforge.prompts import trim
from kforge.records import Candidate, Correct, Mismatch, times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.records import Attempt, Recommendation
    from kforge.roles import Tried

LONGEST_IDEA = 240
"""Most characters of an idea or a reason in a line of the history."""
MOST_DIFFERENCES = 2
"""Number of slower rewrites, the latest ones, whose changes are shown."""
DIFFERENCE_LINES, DIFFERENCE_CHARS = 80, 5000
"""Most lines and characters of the changes of one slower rewrite that are shown."""


def lines(attempts: Sequence[Attempt]) -> list[str]:
    """Return a line for each attempt: its idea, its state, its time, and how it did against the best before it."""
    return [f"attempt {each.index}: {_idea(each)}: {outcome(each)}" for each in attempts]


def _idea(attempt: Attempt) -> str:
    if attempt.recommendation is not None:
        return f"{cut(attempt.recommendation.action, LONGEST_IDEA)} (from attempt {attempt.parent})"
    return "first program" if attempt.parent is None else f"repair of attempt {attempt.parent}"


def outcome(attempt: Attempt) -> str:
    """Return the result of an attempt in words and numbers."""
    verdict = attempt.verdict
    if not isinstance(verdict, Correct):
        case = f" in the case {explained(verdict.case)}" if isinstance(verdict, Mismatch) and verdict.case else ""
        return f"{verdict.state.replace('_', ' ')}{case}: {cut(verdict.reason, LONGEST_IDEA)}"
    if attempt.unchanged is not None:
        return "correct, and the original module unchanged"
    if verdict.timing is None:
        return "correct, not timed"
    parts = [f"correct, {time(verdict.timing.seconds.median)} a call"]
    parts += [f"{times(each.speedup)} over {each.baseline}" for each in verdict.comparisons[:1]]
    if attempt.head_to_head is not None:
        parts.append(f"against attempt {attempt.rival}: {attempt.head_to_head.in_words}")
    return "; ".join(parts)


def standing(verdict: Correct) -> list[str]:
    """Return how fast a correct program is, a sentence each; empty where it was not timed."""
    if verdict.timing is None:
        return []
    said = [f"It takes {time(verdict.timing.seconds.median)} a call."]
    for each in verdict.comparisons:
        low, high = f"{each.speedup.low:.2f}", f"{each.speedup.high:.2f}"
        doubt = f" It is in doubt: {each.doubt}." if each.doubt else ""
        said.append(
            f"Speedup over {each.baseline}: {each.speedup.median:.2f} (95 % interval {low} to {high}; "
            f"{each.baseline} takes {time(each.seconds)}).{doubt}"
        )
    return said


def differences(attempts: Sequence[Attempt], candidate: Candidate) -> list[str]:
    """Return the changes of the latest rewrites that were slower than this program, each as a unified diff."""
    lost = [
        each
        for each in attempts
        if each.head_to_head is not None
        and each.head_to_head.finding == "slower"
        and each.candidate is not None
        and each.rival is not None
        and _source(attempts, each.rival) == candidate.source
    ]
    return [_difference(candidate.source, each) for each in lost[-MOST_DIFFERENCES:]]


def _source(attempts: Sequence[Attempt], index: int) -> str:
    rival = next((each for each in attempts if each.index == index), None)
    return rival.candidate.source if rival is not None and rival.candidate is not None else ""


def _difference(source: str, loser: Attempt) -> str:
    assert loser.candidate is not None
    assert loser.head_to_head is not None
    changed = difflib.unified_diff(
        source.splitlines(), loser.candidate.source.splitlines(), "best", f"attempt {loser.index}", lineterm="", n=1
    )
    head = f"attempt {loser.index}, {loser.head_to_head.in_words}:"
    if loser.why_slower:
        head = "\n".join([head, "by their profiles:", *(f"- {each}" for each in loser.why_slower), "changes:"])
    return f"{head}\n{trim(chr(10).join(changed), DIFFERENCE_LINES, DIFFERENCE_CHARS)}"


def repaired(attempts: Sequence[Attempt], candidate: Candidate | None) -> list[Attempt]:
    """Return the attempt whose program is under repair, and those that it came from, up to the last correct one."""
    at = next((each for each in reversed(attempts) if each.candidate == candidate and not each.is_correct), None)
    chain: list[Attempt] = []
    while at is not None:
        chain.append(at)
        parent = None if at.is_correct else at.parent
        at = next((each for each in attempts if each.index == parent), None)
    return chain


def followed(chain: Sequence[Attempt]) -> Recommendation | None:
    """Return the recommendation that the program under repair follows; None where it follows none.

    `chain`: as `repaired` returns it.
    """
    failed = (each for each in chain if not each.is_correct)
    return next((each.recommendation for each in failed if each.recommendation is not None), None)


def last_correct(chain: Sequence[Attempt]) -> Candidate | None:
    """Return the correct program that the one under repair was to replace; None where there was none."""
    return chain[-1].candidate if chain and chain[-1].is_correct else None


def remarks(chain: Sequence[Attempt]) -> tuple[str, ...]:
    """Return what was unusual about the model's answer for the program under repair, a sentence each."""
    return chain[0].remarks if chain else ()


def told(trial: Tried) -> str:
    """Return an idea with its result, in a line."""
    return f"{cut(trial.recommendation.action, LONGEST_IDEA)} ({trial.outcome})"
