"""The protocol of suite readers: a reader returns problems with their workloads. Nothing of a suite is executed.

A package that reads another format registers an object with the methods of `SuiteReader` under the entry point group
`kforge.suites`. It needs no change in kforge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from kforge.records import Problem

TIMED = "timed"
"""Group of the workloads that a suite itself times. They are judged unless the user chooses others."""
HELD_OUT = "held_out"
"""Group of further workloads, which no program was written for."""


@dataclass(frozen=True)
class Variant:
    """One workload of a problem. It is judged by itself, as a problem of its own."""

    name: str
    """Name of the workload, unique in its problem. Empty if the problem has only one."""
    make: Callable[[], Problem]
    """Returns the problem at this workload. Raises ProblemError if it cannot be judged. It is only called for workloads
    that were chosen."""
    group: str = TIMED
    """Name of a group of workloads that a user chooses together, such as `held_out`."""
    weight: float = 1.0
    """How often the workload is served, relative to the other workloads of its problem."""
    notes: tuple[str, ...] = ()
    """Facts that a reader of the results must know, such as the suite's own tolerance. Each is one sentence."""


@dataclass(frozen=True)
class Entry:
    """One problem of a suite, with its workloads."""

    name: str
    """`family/name`, unique in its suite."""
    variants: Sequence[Variant]
    level: int | None = None
    """The level of a suite that has levels."""
    number: int | None = None
    """The problem's number in its level; None if the suite does not number its problems."""
    tags: frozenset[str] = frozenset()
    """Further keywords by which a user chooses problems, besides the family."""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Labels of the problem lint that are expected, with the reason."""
    refused: str | None = None
    """The reason why kforge judges no problem of this kind; None if it does. Refused problems are left out, with one
    remark."""

    @property
    def family(self) -> str:
        return self.name.partition("/")[0] if "/" in self.name else ""


@runtime_checkable
class SuiteReader(Protocol):
    """Reads suites of one format."""

    name: str
    """Name of the format, for `--format`."""

    def recognizes(self, folder: Path) -> bool:
        """Return whether a folder is a suite of this format. Only names and contents of files are looked at."""
        ...

    def read(self, folder: Path) -> Iterable[Entry]:
        """Return the problems of a suite in its own order. Raises ProblemError if the suite as a whole cannot be read;
        a single bad problem is an entry whose `make` raises it."""
        ...
