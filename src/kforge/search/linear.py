"""The paper's strategy: repair until correct, then improve the best; only a rewrite that is faster replaces it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.search import history
from kforge.search.moves import Move, Optimize, Repair, Write

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from kforge.records import Attempt


class LinearSearch:
    """One attempt after the other, always from the best program."""

    def next_moves(self, attempts: Sequence[Attempt], exhausted: Set[int] = frozenset()) -> tuple[Move, ...]:
        """Return one move: write, repair the last program, or improve the best."""
        if not attempts:
            return (Write(),)
        last, best = attempts[-1], history.start(attempts)
        if best is None or is_worth_repairing(attempts, last):
            return (Repair(last, history.repeats(attempts, last)),)
        return (improve(attempts, best),) if best.index not in exhausted else ()

    def begin_of_round(self, index: int) -> int:
        return index


def is_worth_repairing(attempts: Sequence[Attempt], last: Attempt) -> bool:
    """Return whether an attempt failed and has not had its repairs yet."""
    return not last.is_correct and history.repairs(attempts, last) < history.REPAIRS_OF_A_REWRITE


def improve(attempts: Sequence[Attempt], program: Attempt) -> Optimize:
    """Return the move that improves a program: by an idea not followed yet, or else by a new recommendation."""
    idea = next(iter(history.waiting(attempts, program)), None)
    return Optimize(program, history.tried(attempts, program), history.untried(attempts, program), idea)
