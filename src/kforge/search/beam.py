"""Beam search: the K best programs are improved side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.search import history
from kforge.search.best_of import siblings
from kforge.search.linear import improve, is_worth_repairing
from kforge.search.moves import Move, Repair, Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.records import Attempt


@dataclass(frozen=True)
class BeamSearch:
    """Rounds of `width` moves, one for each of the best programs."""

    width: int

    def next_moves(self, attempts: Sequence[Attempt]) -> tuple[Move, ...]:
        """Return what is left of the present round."""
        done = len(attempts) % self.width
        return self._round(attempts[: len(attempts) - done])[done:]

    def _round(self, attempts: Sequence[Attempt]) -> tuple[Move, ...]:
        if not attempts:
            return (Write(),) * self.width
        programs = history.ranked(attempts)[: self.width]
        if not programs:
            return tuple(_repair(attempts, leaf) for leaf in history.leaves(attempts)[-self.width :])
        moves = [_continued(attempts, program) for program in programs]
        # fewer programs than places: first programs that can still be mended, then further ideas for the best
        first = [leaf for leaf in history.leaves(attempts) if history.chain(attempts, leaf)[0].recommendation is None]
        mendable = [leaf for leaf in first if is_worth_repairing(attempts, leaf)]
        moves += [_repair(attempts, leaf) for leaf in mendable[: self.width - len(moves)]]
        return (*moves, *siblings(attempts, programs[0], self.width - len(moves), len(moves)))


def _continued(attempts: Sequence[Attempt], program: Attempt) -> Move:
    """Return the next move for a program: repair its latest rewrite where that failed, or else improve it."""
    grown = history.rewrites(attempts, program)
    if grown:
        last = history.last_of_chain(attempts, grown[-1])
        if is_worth_repairing(attempts, last):
            return _repair(attempts, last)
    return improve(attempts, program)


def _repair(attempts: Sequence[Attempt], leaf: Attempt) -> Repair:
    return Repair(leaf, history.repeats(attempts, leaf))
