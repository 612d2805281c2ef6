"""Records of a run folder other than attempts: how the run began, and its summary in a list of runs."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field

from kforge import __version__
from kforge.records import Amount, Count, Finding, Interval, Problem, Record, Workload

FORMAT = 1
"""Version of the layout of run folders. A later layout gets the next number, and its code still reads earlier ones."""

FIRST_YEAR, LAST_YEAR = 1970, 9000
"""First and last accepted year of a time. Times near the ends of the calendar overflow in another time zone."""


def _no_integer(value: object) -> object:
    if type(value) is int:  # an integer that is too large for Option's int must not become a float
        raise ValueError("it must be a number with a fraction")
    return value


_Fraction = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_no_integer)]
Option = str | Annotated[int, Field(ge=-(2**63), lt=2**63)] | _Fraction | bool
"""An option's value, of a type that JSON keeps unchanged. An infinite limit is not stored: its option is left out."""


def _moment(value: str) -> str:
    try:
        year = datetime.fromisoformat(value).astimezone(UTC).year
    except (ValueError, OverflowError) as error:
        raise ValueError("it is not a date and time") from error
    if not FIRST_YEAR <= year <= LAST_YEAR:
        raise ValueError(f"its year is not between {FIRST_YEAR} and {LAST_YEAR}")
    return value


Moment = Annotated[str, AfterValidator(_moment)]
"""A date and time in ISO 8601."""
LONGEST_ID = 255
"""Most bytes of an id, which names a folder."""


def _plain_name(value: str) -> str:
    if value in ("", ".", "..") or "/" in value or "\\" in value or not value.isprintable():
        raise ValueError("it must be the name of one folder, without / and \\")
    if len(value.encode()) > LONGEST_ID:
        raise ValueError(f"it has more than {LONGEST_ID} bytes")
    return value


FolderName = Annotated[str, AfterValidator(_plain_name)]
"""The id of a run or suite. It names folders, here and in exports."""
Status = Literal["running", "interrupted", "finished"]


class Header(Record):
    """How a run began: everything that `kforge resume` needs to continue it in the same way."""

    format: Literal[1] = 1
    id: FolderName
    created: Moment
    """When the run began: ISO 8601, UTC."""
    version: str
    """The version of kforge that began the run."""
    problem: Problem
    workload: Workload
    platform: str
    model: str
    analyst: str
    """The model of the performance analysis agent, often the same as `model`."""
    options: dict[str, Option]
    """The options of the run with their final values, by name."""

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
        """Return the header of a run that begins now, with a new id."""
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


class Budgets(Record):
    """Budgets of a run that were enlarged after it began. None leaves a budget as it was; zero removes its limit."""

    budget_usd: Amount | None = None
    budget_tokens: Count | None = None
    budget_minutes: Amount | None = None

    @property
    def given(self) -> dict[str, float]:
        """The budgets that are not None, by the names of the run's options."""
        return {name: value for name, value in self if value is not None}


class RunSummary(Record):
    """The facts about a run that `kforge runs` shows in one line."""

    id: str
    created: Moment
    problem: str
    platform: str
    model: str
    status: Status
    stopped: str | None = None
    """Why the run stopped. None if it is not finished."""
    attempts: Count
    speedup: Interval | None = None
    """Speedup of the best attempt over eager mode, from its repeated evaluations if there are any. None if no attempt
    is correct, or if the program was not timed."""
    finding: Finding | None = None
    """What `speedup` shows: `faster`, `slower` or `cannot tell`."""
    doubt: str | None = None
    """Why `speedup` must not be relied on, or why a correct program has none."""
    no_kernel: str | None = None
    """Why no kernel was found, if the run is finished and only the original module was correct. Otherwise None."""


def run_id(name: str, now: datetime) -> str:
    """Return an id that is unique, readable, sorted by time, and safe as a file name."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-") or "problem"
    letters = "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(4))
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{slug}-{letters}"


def short_id(name: str) -> str:
    """Return the letters at the end of an id, by which users may name a run."""
    return name.rpartition("-")[2]


def is_meant(known: str, name: str) -> bool:
    """Return whether a name matches this id of a run or suite: as the beginning of the id, or as the letters at its
    end."""
    return bool(name) and (known.startswith(name) or short_id(known) == name)
