"""What works on a run, and the rule that no finished stage of it is repeated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.agents import Analyst, Generator
    from kforge.evaluation import Judge
    from kforge.records import Candidate
    from kforge.store import RunFolder

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Workshop:
    """What works on a run: the generation agent F, the analysis agent G, and the judge."""

    generator: Generator
    analyst: Analyst
    judge: Judge
    watch: Callable[[str], None] = lambda _: None
    """Gets short progress reports, for a live display."""


def once(run: RunFolder, index: int, name: str, kind: type[R], candidate: Candidate, make: Callable[[], R]) -> R:
    """Return a stage's result; a finished stage of this candidate is not repeated after a kill."""
    done = run.stage(index, name, kind, candidate.digest)
    if done is None:
        done = make()
        run.put_stage(index, name, done, candidate.digest)
    return done
