"""What an adapter may offer besides running programs: shared memory, profilers, sanitizers, limits of a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch


@dataclass(frozen=True, order=True)
class Limit:
    """Something that holds a device back at this moment."""

    reason: str
    """As in "it was held back by …"."""
    own: bool
    """Whether a program reaches it by its own work, every time, as it does a power limit; heat has a history."""


@dataclass(frozen=True)
class Allocation:
    """A piece of this process's device memory, as another process can open it."""

    base: int
    size: int
    handle: str


class DeviceMemory(Protocol):
    """Allocations that cross between processes by a handle, which is text.

    All of it raises PlatformError when the driver says no, as it does for a handle that somebody made up.
    """

    alignment: int
    """Tensors begin at multiples of this, as those of torch's own allocator do."""

    def allocate(self, size: int) -> torch.Tensor:
        """Bytes that are an allocation of their own; freed with the tensor."""

    def export(self, address: int) -> Allocation:
        """The allocation that this address lies in."""

    def open(self, handle: str) -> torch.Tensor:
        """All bytes of another process's allocation; let go with the tensor."""

    def free(self) -> int:
        """Bytes of the device that no process holds."""

    def within_reach(self) -> int:
        """Those, and what torch keeps for later in this process."""

    def trim(self) -> None:
        """Give what torch keeps for later in this process back to the device, where another process needs it now."""


class Overseer(Protocol):
    """A tool that a worker runs under: a sanitizer, or a profiler.

    Under a command every worker is a new interpreter. What variables are enough for must bear to be forked: workers are
    copies of a process that runs under it.
    """

    @property
    def wrapper(self) -> tuple[str, ...]:
        """A command that is put before the interpreter's own; none where variables are enough."""

    @property
    def environment(self) -> Mapping[str, str]:
        """For the interpreter, and whatever stands before it."""


@dataclass(frozen=True)
class Profiler:
    """A rung of the ladder above torch's own profiler.

    What it counted is in the worker's output after it ended, as an export that `kforge.profiling` reads; it counts
    only what runs inside `Adapter.recording`.
    """

    name: str
    wrapper: tuple[str, ...]
    why_not: Callable[[str], str | None]
    """What in a worker's output says that this profiler cannot work here, in one line; None where nothing does."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NoProfiler:
    """A rung that is missing here, and why, in one line."""

    name: str
    reason: str


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
    """Finds the sanitizer's report in a worker's standard streams; None if it reported nothing."""
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
    """A platform without a sanitizer."""

    reason: str
    """Why it has none, in one line."""
