"""Types that an adapter may return: a separate kernel device, shared device memory, profilers, sanitizers and speed
limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch


@dataclass(frozen=True)
class KernelDevice:
    """The device that runs a platform's kernels, if torch does not know that device and tensors are in host memory.

    A call returns when its kernels have finished and their outputs are in host memory again, so that the host's clock
    can time it.
    """

    name: str
    """The device's name with its driver, for receipts and peak rates."""
    in_worker: bool
    """Whether kernels are machine code that runs in threads of the worker, as with a driver for the host's processors.
    Such kernels can be seen when the worker is stopped; kernels on another device cannot."""
    driver: tuple[str, ...] = ()
    """Parts of the paths of files that build and launch the kernels, such as `/pyopencl/` or `libpocl`. Code in these
    files works for the program itself."""

    def __post_init__(self) -> None:
        """Raise TypeError if a field has another type. A plain string as `driver` would otherwise be taken as a list of
        letters."""
        is_named = isinstance(self.name, str) and bool(self.name)
        is_listed = isinstance(self.driver, tuple) and all(isinstance(part, str) and part for part in self.driver)
        if not (is_named and is_listed):
            raise TypeError("a kernel device needs a name, and its driver is a tuple of parts of paths")


@dataclass(frozen=True, order=True)
class Limit:
    """A reason why a device is slower now than it could be."""

    reason: str
    """The reason, in words that complete the sentence "it was held back by …"."""
    own: bool
    """Whether the program's own work causes the limit every time, as with a power limit. False for heat, which also
    depends on earlier work."""


@dataclass(frozen=True)
class Allocation:
    """A piece of this process's device memory that another process can open by its handle."""

    base: int
    size: int
    handle: str


class DeviceMemory(Protocol):
    """Device memory that processes share by a handle, which is text.

    Every method raises PlatformError if the driver refuses, for example for an invalid handle.
    """

    alignment: int
    """Tensors begin at multiples of this many bytes, as those of torch's own allocator do."""

    def allocate(self, size: int) -> torch.Tensor:
        """Return a tensor of bytes in an allocation of its own, which is freed together with the tensor."""

    def export(self, address: int) -> Allocation:
        """Return the allocation that contains this address."""

    def open(self, handle: str) -> torch.Tensor:
        """Return all bytes of another process's allocation as a tensor. The allocation is closed together with the
        tensor."""

    def free(self) -> int:
        """Return the number of bytes of the device that no process holds."""

    def within_reach(self) -> int:
        """Return the number of free bytes, plus the bytes that torch's allocator keeps cached in this process."""

    def trim(self) -> None:
        """Give the memory that torch keeps cached in this process back to the device, for use by another process."""


class Overseer(Protocol):
    """A tool under which a worker runs: a sanitizer or a profiler.

    A tool with a wrapper command needs a new interpreter for every worker. A tool that needs only environment variables
    must survive a fork, because workers are forked from a process that runs under it.
    """

    @property
    def wrapper(self) -> tuple[str, ...]:
        """A command that is put before the interpreter. Empty if environment variables are enough."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables for the interpreter and the wrapper."""


@dataclass(frozen=True)
class Profiler:
    """A profiler that reports more than torch's own.

    Its counters are in the worker's output after the worker has ended, in an export format that `kforge.profiling`
    reads. It counts only what runs inside `Adapter.recording`.
    """

    name: str
    wrapper: tuple[str, ...]
    why_not: Callable[[str], str | None]
    """Returns, from a worker's output, why this profiler cannot work on this machine, in one line. None if the output
    gives no such reason."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NoProfiler:
    """A profiler that is missing on this machine, with the reason in one line."""

    name: str
    reason: str


@dataclass(frozen=True)
class SanitizerReport:
    """A sanitizer's finding, reduced to the lines that help to fix the program."""

    reason: str
    """One line: the error, where it happened, and the size of the access."""
    log: str
    exhausted: bool = False
    """Whether the sanitizer ran out of memory, which says nothing about the program."""


@dataclass(frozen=True)
class Sanitizer:
    """A sanitizer. A worker under it runs in an interpreter of its own, because the sanitizer's runtime must be loaded
    first.

    There are two ways to prove that the sanitizer was active: by the libraries that the worker has loaded (`runtimes`,
    `evidence`), or by an error that the worker makes on purpose at its end and that must be reported (`planted`).
    """

    name: str
    read: Callable[[str], SanitizerReport | None]
    """Returns the sanitizer's report in a worker's standard output and error. None if it reported nothing."""
    flags: tuple[str, ...] = ()
    """Compiler flags that are added to every build of `kforge.inline`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for the interpreter itself. Processes that it starts later, such as compilers, do not
    inherit them."""
    wrapper: tuple[str, ...] = ()
    """A command that is put before the interpreter, if the sanitizer is a program."""
    runtimes: tuple[str, ...] = ()
    """Libraries that the worker must have loaded from its start. If one is missing, the run proves nothing."""
    evidence: str = ""
    """A library that is loaded with any instrumented code. If it is missing, no code was instrumented."""
    planted: str = ""
    """Name of the error that `Adapter.plant` makes when all cases are done. Empty if the sanitizer needs none. With a
    planted error, the worker then ends by itself, and its output up to its end is read. A program that raised or died
    without a report proves nothing."""
    proven: Callable[[str], bool] = lambda _: True
    """Returns whether a worker's output contains the report on the planted error."""
    unsuited: Callable[[str], str | None] = lambda _: None
    """Returns why a program's source contains nothing that this sanitizer checks. None if it contains something."""
    blind_to: Callable[[str, str], bool] | None = None
    """Returns, for a program and the name of a kernel, whether the sanitizer cannot see that kernel's writes. If so,
    its findings on memory that was never written mean nothing. None if the sanitizer sees all writes."""
    conditions: str = "memory that was never written holds NaN"
    """What is different under the sanitizer. It is shown with an output that is wrong only there."""


@dataclass(frozen=True)
class NoSanitizer:
    """The absence of a sanitizer, as an adapter reports it."""

    reason: str
    """Why the platform has no sanitizer, in one line."""
