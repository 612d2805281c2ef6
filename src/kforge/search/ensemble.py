"""Search strategy for several models: each writes a first program, and then another strategy continues.

The linear strategy then improves the best correct program. If none is correct, it repairs the one that came furthest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.search import history
from kforge.search.linear import LinearSearch, improve
from kforge.search.moves import Move, Repair, Write

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from kforge.records import Attempt
    from kforge.search.moves import Strategy


@dataclass(frozen=True)
class EnsembleSearch:
    """The strategy of an ensemble: one first program for each model, and then another strategy."""

    writers: int
    then: Strategy

    def next_moves(self, attempts: Sequence[Attempt], exhausted: Set[int] = frozenset()) -> tuple[Move, ...]:
        """Return the first programs that are still to be written, and after them what the other strategy does.

        The linear strategy continues from its last attempt. Here it begins with the best of the first programs instead.
        If none is correct, it begins with the one that came furthest.
        """
        if len(attempts) < self.writers:
            return (Write(),) * (self.writers - len(attempts))
        if len(attempts) > self.writers or not isinstance(self.then, LinearSearch):
            return self.then.next_moves(attempts, exhausted)
        best = history.start(attempts)
        if best is not None:
            return (improve(attempts, best),) if best.index not in exhausted else ()
        furthest = history.furthest(attempts)
        return (Repair(furthest, history.repeats(attempts, furthest)),)

    def begin_of_round(self, index: int) -> int:
        """Return 0 for the first programs, which are one round; for later attempts what the other strategy says."""
        return 0 if index < self.writers else self.then.begin_of_round(index)
