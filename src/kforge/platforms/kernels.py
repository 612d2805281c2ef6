"""Types for the kernels that a device ran, and for their owners. `kernel_watch.py` collects them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

KernelOwner = Literal["authored", "library", "copy"]
"""Who wrote a kernel. Kernels that only move or fill memory have no owner."""


class KernelLaunches(NamedTuple):
    """All launches of kernels with one name."""

    name: str
    launches: int
    seconds: float


class Watched(NamedTuple):
    kernels: tuple[KernelLaunches, ...]
    """The slowest first; empty where nothing could be seen."""
    busy: float
    """Seconds in which at least one kernel ran: on several streams they overlap."""


class Run(NamedTuple):
    """One launch, with its times in nanoseconds of any clock."""

    name: str
    start: int
    end: int


def summary(runs: Iterable[Run]) -> Watched:
    """Sum up the launches by kernel name."""
    launches: dict[str, int] = {}
    nanoseconds: dict[str, int] = {}
    busy = until = 0
    for run in sorted(runs, key=lambda run: run.start):
        launches[run.name] = launches.get(run.name, 0) + 1
        nanoseconds[run.name] = nanoseconds.get(run.name, 0) + run.end - run.start
        busy += max(0, run.end - max(run.start, until))
        until = max(until, run.end)
    found = [KernelLaunches(name, launches[name], spent / 1e9) for name, spent in nanoseconds.items()]
    return Watched(tuple(sorted(found, key=lambda kernel: -kernel.seconds)), busy / 1e9)
