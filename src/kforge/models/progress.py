"""The progress of a run: the speedup of the best program after each attempt, and the cost and time until then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.records import Amount, Count, Interval, Record, Usage, best_attempt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.models.ledger import Ledger
    from kforge.records import Attempt


class RunProgress(Record):
    """The state of a run after one attempt."""

    attempt: Count
    best: Count | None = None
    """Index of the best attempt so far; None where none is correct."""
    speedup: Interval | None = None
    """Speedup of the best attempt over eager, in its own evaluation; None where it was not timed."""
    doubt: str | None = None
    """Why the speedup must not be relied on; None where it may be."""
    usage: Usage
    """Cost of all model calls so far."""
    seconds: Amount
    """Wall-clock seconds of the run so far."""


def progress(attempts: Sequence[Attempt], ledger: Ledger) -> Iterator[RunProgress]:
    """Yield the state of a run after each of its attempts."""
    for count, attempt in enumerate(attempts, 1):
        best = best_attempt(attempts[:count])
        eager = best.comparisons[0] if best is not None and best.comparisons else None
        yield RunProgress(
            attempt=attempt.index,
            best=None if best is None else best.index,
            speedup=None if eager is None else eager.speedup,
            doubt=None if eager is None else eager.doubt,
            usage=ledger.until(attempt.index).usage,
            seconds=attempt.elapsed,
        )
