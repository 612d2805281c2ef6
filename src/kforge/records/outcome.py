"""How a run ended, and which of its attempts is the best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.records.attempt import Attempt, Usage
from kforge.records.evidence import Replication
from kforge.records.numbers import Amount, Count
from kforge.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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


def best_attempt(attempts: Iterable[Attempt]) -> Attempt | None:
    """Return the best correct attempt: the one with the highest lower bound of its speedup. None if there is none.

    Among equals the highest median wins, then the earliest. An attempt without timing comes last. The original module,
    unchanged, is never the best.
    """

    def rank(attempt: Attempt) -> tuple[float, float]:
        return (attempt.speedup.low, attempt.speedup.median) if attempt.speedup is not None else (0.0, 0.0)

    return max((a for a in attempts if a.is_kernel), key=rank, default=None)


def why_no_kernel(attempts: Sequence[Attempt]) -> str | None:
    """Return why the only correct program is the original module, unchanged; None if another program is correct."""
    correct = [attempt for attempt in attempts if attempt.is_correct]
    if any(attempt.unchanged is None for attempt in correct):
        return None
    return correct[-1].unchanged if correct else None
