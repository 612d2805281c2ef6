"""Beam search: the K best programs are improved side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.search import history
from kforge.search.best_of import siblings
from kforge.search.linear import improve, is_worth_repairing
from kforge.search.moves import Move, Repair, Write

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from kforge.records import Attempt


@dataclass(frozen=True)
class BeamSearch:
    """Rounds of `width` moves, one for each of the best programs. If there are fewer, the best one gets more moves."""

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
        ranked = history.ranked(attempts)
        if not ranked:
            return tuple(_repair(attempts, leaf) for leaf in history.leaves(attempts)[-self.width :])
        programs = [each for each in ranked if each.index not in exhausted][: self.width]
        if not programs:
            return ()
        best, *rest = programs
        # fewer programs than places: repairs of failed first programs, then further ideas for the best
        first = [leaf for leaf in history.leaves(attempts) if history.chain(attempts, leaf)[0].recommendation is None]
        mendable = [leaf for leaf in first if is_worth_repairing(attempts, leaf)][: self.width - len(programs)]
        others = [*(_continued(attempts, each) for each in rest), *(_repair(attempts, leaf) for leaf in mendable)]
        places = self.width - len(others)
        broken = _broken(attempts, best)
        if broken is None:
            return (*siblings(attempts, best, places), *others)
        return (_repair(attempts, broken), *siblings(attempts, best, places - 1, offset=1), *others)


def _continued(attempts: Sequence[Attempt], program: Attempt) -> Move:
    """Return the next move for a program: repair its latest rewrite where that failed, or else improve it."""
    broken = _broken(attempts, program)
    return improve(attempts, program) if broken is None else _repair(attempts, broken)


def _broken(attempts: Sequence[Attempt], program: Attempt) -> Attempt | None:
    """Return the latest rewrite of a program, or its last repair, if that failed and is worth repairing; otherwise
    None."""
    grown = history.rewrites(attempts, program)
    last = history.last_of_chain(attempts, grown[-1]) if grown else None
    return last if last is not None and is_worth_repairing(attempts, last) else None


def _repair(attempts: Sequence[Attempt], leaf: Attempt) -> Repair:
    return Repair(leaf, history.repeats(attempts, leaf))
