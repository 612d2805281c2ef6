"""The agents, the judge and the search strategy of a run, and the rule that no finished stage is repeated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kforge.loop.quiet import QuietMoments
from kforge.loop.turns import NoTurns, Turns
from kforge.records import Record
from kforge.search import LinearSearch

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.agents import Analyst, Generator
    from kforge.evaluation import Judge
    from kforge.records import Candidate
    from kforge.search import Strategy
    from kforge.store import RunFolder

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Workshop:
    """The parts that work on a run: the generation agent F, the analysis agent G, the judge and the search strategy."""

    generator: Generator
    analyst: Analyst
    judge: Judge
    watch: Callable[[str], None] = lambda _: None
    """Gets short progress reports, for a live display. It may be called from several threads."""
    search: Strategy = field(default_factory=LinearSearch)
    quiet: QuietMoments = field(default_factory=QuietMoments)
    """Waits for quiet moments; by default never."""
    turns: Turns = field(default_factory=NoTurns)
    """Waits while other runs use the machine; by default never."""
    at_once: int = 1
    """Most model calls in flight. More than one only for models that answer over a network."""
    further: tuple[Generator, ...] = ()
    """The generation agents on the further models of an ensemble."""

    def writer(self, root: int) -> Generator:
        """Return the agent that writes the first program with this index, and all programs that descend from it.

        The models of an ensemble take turns in writing first programs.
        """
        agents = (self.generator, *self.further)
        return agents[root % len(agents)]


def once(run: RunFolder, index: int, name: str, kind: type[R], candidate: Candidate, make: Callable[[], R]) -> R:
    """Return the result of a stage. A stage that was finished for this candidate, even before a kill, is read from disk
    and not repeated."""
    done = run.stage(index, name, kind, candidate.digest)
    if done is None:
        done = make()
        run.put_stage(index, name, done, candidate.digest)
    return done
