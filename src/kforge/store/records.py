"""What a run folder holds besides attempts: how the run began, how it ended, and one line about it."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field

from kforge import __version__
from kforge.records import Amount, Attempt, Count, Finding, Interval, Problem, Record, Replication, Usage, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FORMAT = 1
"""The layout of run folders; a later layout gets the next number and reads the earlier ones."""

FIRST_YEAR, LAST_YEAR = 1970, 9000
"""Years of a moment: those near the ends of the calendar cannot be told in another time zone."""


def _no_integer(value: object) -> object:
    if type(value) is int:  # one that is too large would become a float
        raise ValueError("it must be a number with a fraction")
    return value


_Fraction = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_no_integer)]
Option = str | Annotated[int, Field(ge=-(2**63), lt=2**63)] | _Fraction | bool
"""What JSON keeps as it is. An option that sets no limit is left out rather than infinite."""


def _moment(value: str) -> str:
    try:
        year = datetime.fromisoformat(value).astimezone(UTC).year
    except (ValueError, OverflowError) as error:
        raise ValueError("it is not a date and time") from error
    if not FIRST_YEAR <= year <= LAST_YEAR:
        raise ValueError(f"its year is not between {FIRST_YEAR} and {LAST_YEAR}")
    return value


Moment = Annotated[str, AfterValidator(_moment)]
"""ISO 8601."""
Status = Literal["running", "interrupted", "finished"]


class Header(Record):
    """How a run began: everything that `resume` needs to go on exactly as it was started."""

    format: Literal[1] = 1
    id: str
    created: Moment
    """ISO 8601, UTC."""
    version: str
    """Of the kforge that began the run."""
    problem: Problem
    workload: Workload
    platform: str
    model: str
    analyst: str
    """The performance analysis agent's model; often the same as `model`."""
    options: dict[str, Option]
    """The resolved options of the run, by name."""

    @classmethod
    def new(
        cls,
        *,
        problem: Problem,
        workload: Workload,
        platform: str,
        model: str,
        analyst: str,
        options: dict[str, Option],
    ) -> Self:
        """A header of a run that begins now, with an id nobody has yet."""
        now = datetime.now(UTC)
        return cls(
            id=run_id(problem.name, now),
            created=now.isoformat(timespec="seconds"),
            version=__version__,
            problem=problem,
            workload=workload,
            platform=platform,
            model=model,
            analyst=analyst,
            options=options,
        )


class Disproof(Record):
    """A correct attempt that did not stay so when it was evaluated again."""

    attempt: Count
    reason: str


class Outcome(Record):
    """How a run ended."""

    stopped: str
    """Why the loop stopped, in its own words."""
    best: Count | None = None
    """Index of the best attempt; absent when nothing was correct, nothing stayed so, or no kernel was found."""
    no_kernel: str | None = None
    """Why no kernel was found, where the only correct program is the original module unchanged."""
    replication: Replication | None = None
    """The best attempt evaluated again; absent when that was not asked for."""
    disproved: tuple[Disproof, ...] = ()
    usage: Usage
    seconds: Amount
    """Wall time of all sessions; of one that was cut short, until its last finished attempt."""
    session_seconds: Amount | None = None
    """Wall time of the last session; absent where an earlier kforge made the run, and `seconds` are its attempts'."""


class RunSummary(Record):
    """One line about a run, as `kforge runs` shows it."""

    id: str
    created: Moment
    problem: str
    platform: str
    model: str
    status: Status
    stopped: str | None = None
    """Present when the run is finished."""
    attempts: Count
    speedup: Interval | None = None
    """Of the best attempt over eager, by its repetitions where there are some; absent while nothing is correct."""
    finding: Finding | None = None
    """What that interval shows."""
    doubt: str | None = None
    """Why that interval is not to be believed."""
    no_kernel: str | None = None
    """Why no kernel was found; present when the run is finished and only the original module was correct."""


def why_no_kernel(attempts: Sequence[Attempt]) -> str | None:
    """Why the only correct program is the original module unchanged; None where that is not so."""
    correct = [attempt for attempt in attempts if attempt.is_correct]
    if any(attempt.unchanged is None for attempt in correct):
        return None
    return correct[-1].unchanged if correct else None


def run_id(name: str, now: datetime) -> str:
    """An id that sorts by time, can be read, is a safe file name and does not collide."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-") or "problem"
    letters = "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(4))
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{slug}-{letters}"


def short_id(name: str) -> str:
    """The letters at the end of an id, by which users may name a run."""
    return name.rpartition("-")[2]


def is_meant(known: str, name: str) -> bool:
    """Whether a user may mean this run or suite by a name: the beginning of its id, or the letters at its end."""
    return bool(name) and (known.startswith(name) or short_id(known) == name)


def best_attempt(attempts: Iterable[Attempt]) -> Attempt | None:
    """The correct attempt whose speedup is surest: highest lower bound, then median, then the earliest.

    The original module, unchanged, is never the best.
    """

    def rank(attempt: Attempt) -> tuple[float, float]:
        assert attempt.speedup is not None
        return attempt.speedup.low, attempt.speedup.median

    return max((a for a in attempts if a.speedup is not None), key=rank, default=None)
