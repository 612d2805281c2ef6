"""The moves of a search, and the protocol that every strategy implements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from kforge.records import Attempt, Recommendation
    from kforge.roles import Tried


@dataclass(frozen=True)
class Write:
    """Write a first program."""


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
    untried: tuple[Recommendation, ...] = ()
    """Ideas for other programs of the run that no attempt has followed, the latest first."""
    idea: Recommendation | None = None
    """An idea that the analysis agent gave earlier for this program, not followed yet. None: ask the agent."""
    advised_by: int | None = None
    """Index of the attempt of the same round whose advice this attempt shares. None: this attempt asks the agent."""
    rank: int = 0
    """Position of the followed idea in shared advice. If the advice has fewer ideas, positions wrap around."""


Move = Write | Repair | Optimize


class Strategy(Protocol):
    """Decides which attempt is continued next. It depends on the attempts of a run only."""

    def next_moves(self, attempts: Sequence[Attempt], exhausted: Set[int] = frozenset()) -> tuple[Move, ...]:
        """Return the next moves; none if nothing is left worth trying.

        The same attempts always give the same moves. Later moves do not depend on the results of earlier ones: when the
        first move was carried out, with any result, the others are returned. So siblings can be asked for at once, and
        a run that was killed in the middle of a round goes on with the rest of it.

        `exhausted`: indices of programs for which nothing is left worth trying. They are not improved any more.
        """
        ...

    def begin_of_round(self, index: int) -> int:
        """Return the index of the first attempt in the round of this attempt. Agents are told only of the attempts
        before it, so that a question does not depend on which attempts of the round have ended."""
        ...
