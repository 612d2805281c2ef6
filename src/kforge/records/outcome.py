"""How a run ended, and which of its attempts is the best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.errors import BUDGET_SPENT
from kforge.records.attempt import Attempt, Usage
from kforge.records.evidence import Replication
from kforge.records.numbers import Amount, Count
from kforge.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kforge.records.head_to_head import HeadToHead


class Disproof(Record):
    """A correct attempt that was not correct when it was evaluated again."""

    attempt: Count
    """Index of the attempt."""
    reason: str


class Outcome(Record):
    """How a run ended."""

    stopped: str
    """Why the loop stopped, as a text for users."""
    best: Count | None = None
    """Index of the best attempt; None if no attempt stayed correct, or if no kernel was found."""
    no_kernel: str | None = None
    """Why no kernel was found, if the only correct program is the original module; otherwise None."""
    replication: Replication | None = None
    """Repeated evaluations of the best attempt; None if they were not requested."""
    disproved: tuple[Disproof, ...] = ()
    """Attempts that were not correct when they were evaluated again."""
    usage: Usage
    seconds: Amount
    """Wall time of all sessions. An interrupted session counts until its last finished attempt."""
    session_seconds: Amount | None = None
    """Wall time of the last session. None in runs of old versions of kforge, whose `seconds` are the sum over
    attempts."""

    @property
    def is_budget_spent(self) -> bool:
        """Whether a larger budget lets the run go on."""
        return self.stopped.startswith(BUDGET_SPENT)


def best_attempt(
    attempts: Iterable[Attempt], compare: Callable[[Attempt, Attempt], HeadToHead | None] | None = None
) -> Attempt | None:
    """Return the best attempt: the first correct one, replaced by each later one that was faster than the best so far
    when the two were timed together.

    Speedups over eager of two evaluations are never compared: each was measured at another time, beside other
    processes. `compare` returns the result of timing a challenger against the best so far; by default, the result that
    the attempts record. A timed program replaces one that was not timed. The original module, unchanged, is never the
    best. None if no attempt is correct.
    """
    compare = compare or recorded
    best: Attempt | None = None
    for attempt in attempts:
        if attempt.is_kernel and (best is None or _replaces(attempt, best, compare)):
            best = attempt
    return best


def recorded(challenger: Attempt, best: Attempt) -> HeadToHead | None:
    """Return the recorded result of timing an attempt against `best`; None if the two were not timed together."""
    return challenger.head_to_head if challenger.rival == best.index else None


def _replaces(challenger: Attempt, best: Attempt, compare: Callable[[Attempt, Attempt], HeadToHead | None]) -> bool:
    if best.untimed is not None or challenger.untimed is not None:
        return challenger.untimed is None
    found = compare(challenger, best)
    return found is not None and found.finding == "faster"


def why_no_kernel(attempts: Sequence[Attempt]) -> str | None:
    """Return why the only correct program is the original module, unchanged; None if another program is correct."""
    correct = [attempt for attempt in attempts if attempt.is_correct]
    if any(attempt.unchanged is None for attempt in correct):
        return None
    return correct[-1].unchanged if correct else None
