"""The paper's strategy: repair until correct, then improve the best; only a rewrite that is faster replaces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.agents import Tried
from kforge.records import best_attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.records import Attempt, Recommendation

REPAIRS_OF_A_REWRITE = 2
"""Number of repairs that a broken rewrite gets, once some attempt is correct, before the loop returns to the best."""


@dataclass(frozen=True)
class Write:
    """Write the first program."""


@dataclass(frozen=True)
class Repair:
    """A functional pass: repair this attempt."""

    parent: Attempt
    repeats: int
    """How often the same program had the same state before, so that the same question is not asked again."""


@dataclass(frozen=True)
class Optimize:
    """An optimization pass: profile this attempt, get one recommendation, rewrite."""

    parent: Attempt
    tried: tuple[Tried, ...]
    """What was recommended for the same program before, and the results."""


Move = Write | Repair | Optimize


def next_move(attempts: Sequence[Attempt]) -> Move:
    """The next move after these attempts. The same attempts always give the same move, so a run can be resumed."""
    if not attempts:
        return Write()
    last = attempts[-1]
    # where no program is better, start from the original module, unchanged
    best = best_attempt(attempts) or next((each for each in attempts if each.is_correct), None)
    if best is None or (not last.is_correct and _repairs(attempts) < REPAIRS_OF_A_REWRITE):
        return Repair(last, _repeats(attempts, last))
    return Optimize(best, _tried(attempts, best))


def _repairs(attempts: Sequence[Attempt]) -> int:
    """Return the number of consecutive repairs up to now, none of which was correct."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.is_correct or attempt.recommendation is not None:
            break
        count += 1
    return count


def _repeats(attempts: Sequence[Attempt], last: Attempt) -> int:
    return sum(
        attempt.candidate == last.candidate and attempt.verdict.state == last.verdict.state
        for attempt in attempts[: last.index]
    )


def _tried(attempts: Sequence[Attempt], best: Attempt) -> tuple[Tried, ...]:
    return tuple(
        _tried_with(attempt.recommendation, _last_of_chain(attempts, attempt), best)
        for attempt in attempts
        if attempt.parent == best.index and attempt.recommendation is not None
    )


def _tried_with(recommendation: Recommendation, last: Attempt, best: Attempt) -> Tried:
    found = last.head_to_head if last.rival == best.index else None
    given_up = last.is_kernel and found is not None and found.finding == "slower"
    return Tried(recommendation=recommendation, outcome=_outcome(last, best), given_up=given_up)


def _last_of_chain(attempts: Sequence[Attempt], attempt: Attempt) -> Attempt:
    """Return the attempt itself, or the last of its repairs."""
    for later in attempts[attempt.index + 1 :]:
        if later.parent == attempt.index and later.recommendation is None:
            attempt = later
    return attempt


def _outcome(attempt: Attempt, best: Attempt) -> str:
    if attempt.unchanged is not None and attempt.is_correct:
        return "the rewrite was the original module, unchanged"
    if not attempt.is_correct:
        return f"the rewrite failed ({attempt.verdict.state.replace('_', ' ')})"
    found = attempt.head_to_head if attempt.rival == best.index else None
    if found is None or found.finding == "undecided":
        return f"the rewrite was correct; whether it is faster is {found.in_words if found else 'not known'}"
    return f"the rewrite was correct and {found.in_words}"
