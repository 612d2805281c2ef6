"""Types for the kernels that a device ran, and for their authors. `kernel_watch.py` collects the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

KernelOwner = Literal["authored", "library", "copy"]
"""The author of a kernel: the program (`authored`) or a library. A kernel that only moves or fills memory is a `copy`,
and counts for neither."""


class KernelLaunches(NamedTuple):
    """All launches of kernels with the same name: their number, and their seconds together."""

    name: str
    launches: int
    seconds: float


class WatchedKernels(NamedTuple):
    """The kernels that a device ran during a call."""

    kernels: tuple[KernelLaunches, ...]
    """The kernels, the one with the most time first. Empty if no kernel could be seen."""
    busy: float
    """Seconds in which at least one kernel ran. Kernels on several streams overlap, so this is not their sum."""


class Run(NamedTuple):
    """One launch, with its start and end in nanoseconds of some clock."""

    name: str
    start: int
    end: int


def summary(runs: Iterable[Run]) -> WatchedKernels:
    """Return the launches summed up by kernel name."""
    launches: dict[str, int] = {}
    nanoseconds: dict[str, int] = {}
    busy = until = 0
    for run in sorted(runs, key=lambda run: run.start):
        launches[run.name] = launches.get(run.name, 0) + 1
        nanoseconds[run.name] = nanoseconds.get(run.name, 0) + run.end - run.start
        busy += max(0, run.end - max(run.start, until))
        until = max(until, run.end)
    found = [KernelLaunches(name, launches[name], spent / 1e9) for name, spent in nanoseconds.items()]
    return WatchedKernels(tuple(sorted(found, key=lambda kernel: -kernel.seconds)), busy / 1e9)
