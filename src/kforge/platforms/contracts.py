"""What an adapter may offer besides running programs: another device, shared memory, profilers, sanitizers, limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch


@dataclass(frozen=True)
class KernelDevice:
    """The device that runs a platform's kernels, where torch does not know it and tensors are in host memory.

    A call returns when its kernels are done and their outputs are in host memory again, so the host's clock times it.
    """

    name: str
    """The device's name with its driver, for receipts and peaks."""
    in_worker: bool
    """Whether kernels are machine code that runs in threads of the worker: a driver for the host's processors. Such
    kernels are seen when the worker is stopped; those of another device are not."""
    driver: tuple[str, ...] = ()
    """Parts of the paths of files that build and launch the kernels: `/pyopencl/`, `libpocl`. In these files a program
    only does its own work."""

    def __post_init__(self) -> None:
        """Raises TypeError for fields of other types: each letter of a text would be a part of a path."""
        is_named = isinstance(self.name, str) and bool(self.name)
        is_listed = isinstance(self.driver, tuple) and all(isinstance(part, str) and part for part in self.driver)
        if not (is_named and is_listed):
            raise TypeError("a kernel device needs a name, and its driver is a tuple of parts of paths")


@dataclass(frozen=True, order=True)
class Limit:
    """Something that limits a device's speed now."""

    reason: str
    """The reason in words that complete "it was held back by …"."""
    own: bool
    """Whether a program reaches the limit by its own work, every time, as with a power limit. Heat also depends on
    earlier work."""


@dataclass(frozen=True)
class Allocation:
    """A piece of this process's device memory that another process can open."""

    base: int
    size: int
    handle: str


class DeviceMemory(Protocol):
    """Device memory that processes share by a handle, which is text.

    Every method raises PlatformError when the driver refuses, for example for an invented handle.
    """

    alignment: int
    """Tensors begin at multiples of this, as those of torch's own allocator do."""

    def allocate(self, size: int) -> torch.Tensor:
        """Return bytes that are a separate allocation, which is freed with the tensor."""

    def export(self, address: int) -> Allocation:
        """Return the allocation that holds this address."""

    def open(self, handle: str) -> torch.Tensor:
        """Return all bytes of another process's allocation; it is closed with the tensor."""

    def free(self) -> int:
        """Return the bytes of the device that no process holds."""

    def within_reach(self) -> int:
        """Return the free bytes, plus those that torch's allocator keeps cached in this process."""

    def trim(self) -> None:
        """Give torch's cached memory in this process back to the device, where another process needs it now."""


class Overseer(Protocol):
    """A tool that a worker runs under: a sanitizer, or a profiler.

    With a wrapper command every worker is a new interpreter. A tool that needs variables only must survive a fork:
    workers are copies of a process that runs under it.
    """

    @property
    def wrapper(self) -> tuple[str, ...]:
        """A command that is put before the interpreter; empty where variables are enough."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for the interpreter and the wrapper."""


@dataclass(frozen=True)
class Profiler:
    """A profiler that is better than torch's own.

    Its counters are in the worker's output after the worker ended, in an export format that `kforge.profiling` reads.
    It counts only what runs inside `Adapter.recording`.
    """

    name: str
    wrapper: tuple[str, ...]
    why_not: Callable[[str], str | None]
    """Returns why this profiler cannot work here, from a worker's output, in one line; None where nothing says so."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NoProfiler:
    """A profiler that is missing here, with the reason in one line."""

    name: str
    reason: str


@dataclass(frozen=True)
class SanitizerReport:
    """What a sanitizer found, cut to the lines that help to fix the program."""

    reason: str
    """One line: the error, where it is, and how large."""
    log: str
    exhausted: bool = False
    """Whether the sanitizer ran out of memory, which says nothing about the program."""


@dataclass(frozen=True)
class Sanitizer:
    """A sanitizer. A worker under it is another interpreter, because the sanitizer's runtime must be loaded first.

    There are two ways to know that it was really active: by the libraries that the worker has loaded (`runtimes`,
    `evidence`), or by an error that the worker makes on purpose at its end, and that must be reported (`planted`).
    """

    name: str
    read: Callable[[str], SanitizerReport | None]
    """Finds the sanitizer's report in a worker's standard streams; None if it reported nothing."""
    flags: tuple[str, ...] = ()
    """Added to every build of `kforge.inline`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the interpreter itself. Processes that it starts later, such as compilers, do not inherit them."""
    wrapper: tuple[str, ...] = ()
    """A command that is put before the interpreter, where the sanitizer is a program."""
    runtimes: tuple[str, ...] = ()
    """Libraries that the worker must have loaded from its start: without one of them the run proves nothing."""
    evidence: str = ""
    """A library that is loaded with all instrumented code: without it nothing was instrumented."""
    planted: str = ""
    """The error that `Adapter.plant` makes when all cases are done. If there is one, the worker then ends by itself,
    and its output until then is read. A program that only raised or died, without a report, proves nothing."""
    proven: Callable[[str], bool] = lambda _: True
    """Returns whether a worker's output holds the report on the planted error."""
    unsuited: Callable[[str], str | None] = lambda _: None
    """Returns why a program's source has nothing that this sanitizer checks; None where it has."""
    blind_to: Callable[[str, str], bool] | None = None
    """Returns whether the sanitizer misses what a kernel of this name, run by this program, writes: its findings then
    mean nothing. None where it sees everything it needs."""
    conditions: str = "memory that was never written holds NaN"
    """What is different under the sanitizer: shown with an output that is wrong only there."""


@dataclass(frozen=True)
class NoSanitizer:
    """A platform without a sanitizer."""

    reason: str
    """Why it has none, in one line."""
