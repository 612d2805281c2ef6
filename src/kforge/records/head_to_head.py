"""Two correct programs timed against each other, in alternating blocks of one session."""

from __future__ import annotations

from typing import Literal

from kforge.records.numbers import Amount, Count, Positive
from kforge.records.record import Record
from kforge.records.verdict import Interval, times

Standing = Literal["faster", "slower", "undecided"]


class HeadToHead(Record):
    """The result of timing a correct program (the challenger) against another one (its rival), on the same inputs."""

    finding: Standing
    """Whether the challenger is faster than its rival. `undecided` says nothing about either program."""
    speedup: Interval | None = None
    """Seconds of the rival divided by those of the challenger. None if nothing could be timed."""
    seconds: Positive | None = None
    """Median seconds per call of the challenger."""
    rival_seconds: Positive | None = None
    pairs: Count = 0
    """Number of timed pairs of blocks."""
    spent: Amount = 0.0
    """Seconds that the session took."""
    busy: Amount = 0.0
    """Share of the machine that other processes used during the session, between 0 and 1."""
    reason: str = ""
    """Why the finding is undecided, if the interval alone does not show it. Otherwise empty."""

    @property
    def in_words(self) -> str:
        """The finding with its ratio and reason, as users and agents read it."""
        ratio = f" ({times(self.speedup)})" if self.speedup is not None else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.finding}{ratio}{why}"
