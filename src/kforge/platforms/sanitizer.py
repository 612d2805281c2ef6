"""What an adapter says about its platform's sanitizer: how a worker is started under it, and how its report reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True)
class Report:
    """What a sanitizer found, cut down to the lines that help to mend the program."""

    reason: str
    """One line: what it was, where, and by how much."""
    log: str
    exhausted: bool = False
    """The sanitizer ran out of memory, which says nothing about the program."""


@dataclass(frozen=True)
class Sanitizer:
    """A worker under it has another interpreter, because its runtime must be there before anything else is.

    That it was really there is known in one of two ways: by the libraries that the worker has loaded (`runtimes`,
    `evidence`), or by an error that the worker commits on purpose at its end, and that must be reported (`planted`).
    """

    name: str
    read: Callable[[str], Report | None]
    """The report in what a worker wrote to its standard streams; None where there is none."""
    flags: tuple[str, ...] = ()
    """Added to every build of `kforge.inline`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """For the interpreter itself; what it starts later, compilers say, does not inherit it."""
    wrapper: tuple[str, ...] = ()
    """A command that is put before the interpreter's own, where the sanitizer is a program."""
    runtimes: tuple[str, ...] = ()
    """Libraries that the worker has loaded from its start: without one of them the run would prove nothing."""
    evidence: str = ""
    """A library that is loaded with whatever was instrumented: without it nothing was."""
    planted: str = ""
    """The error that `Adapter.plant` commits when all cases are done. Where there is one, the worker is then let end by
    itself, and what it wrote until then is read; what only raised or died, without a report, proves nothing."""
    proven: Callable[[str], bool] = lambda _: True
    """Whether the report on the planted error is in what a worker wrote."""
    unsuited: Callable[[str], str | None] = lambda _: None
    """Why a program's source has nothing that this sanitizer looks at; None where it has."""
    blind_to: Callable[[str, str], bool] | None = None
    """Whether it does not see what a kernel of this name, which this program ran, writes: then its findings mean
    nothing. None where it sees everything that it needs to."""
    conditions: str = "memory that was never written holds NaN"
    """What is different under it: said beside an output that is wrong there and nowhere else."""


@dataclass(frozen=True)
class NoSanitizer:
    """There is none, and why, in one line."""

    reason: str
