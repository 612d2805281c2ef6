"""Best of N: every step of the linear strategy is made N times, and the best result is continued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.search import history
from kforge.search.linear import is_worth_repairing
from kforge.search.moves import Move, Optimize, Repair, Write

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from kforge.records import Attempt


@dataclass(frozen=True)
class BestOfSearch:
    """Rounds of `width` siblings: the same question each time, or the ideas of one piece of advice in order."""

    width: int

    def next_moves(self, attempts: Sequence[Attempt], exhausted: Set[int] = frozenset()) -> tuple[Move, ...]:
        """Return the remaining moves of the present round."""
        begin = self.begin_of_round(len(attempts))
        return self._round(attempts[:begin], exhausted)[len(attempts) - begin :]

    def begin_of_round(self, index: int) -> int:
        return index - index % self.width

    def _round(self, attempts: Sequence[Attempt], exhausted: Set[int]) -> tuple[Move, ...]:
        if not attempts:
            return (Write(),) * self.width
        latest, best = attempts[-self.width :], history.start(attempts)
        if best is None or not any(each.is_correct for each in latest):
            last = history.furthest([each for each in latest if not each.is_correct])
            if best is None or is_worth_repairing(attempts, last):
                return (Repair(last, history.repeats(attempts, last)),) * self.width
        return siblings(attempts, best, self.width) if best.index not in exhausted else ()


def siblings(attempts: Sequence[Attempt], program: Attempt, count: int, offset: int = 0) -> tuple[Optimize, ...]:
    """Return moves that improve one program in several ways: by ideas not followed yet, then by those of new advice.

    `offset`: number of moves of the same round before these.
    """
    known = program, history.tried(attempts, program), history.untried(attempts, program)
    ideas = history.waiting(attempts, program)[:count]
    asker = len(attempts) + offset + len(ideas)
    return (
        *(Optimize(*known, idea) for idea in ideas),
        *(Optimize(*known, advised_by=asker if rank else None, rank=rank) for rank in range(count - len(ideas))),
    )
