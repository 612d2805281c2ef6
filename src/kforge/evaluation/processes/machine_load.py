"""Measures how much of the machine other processes use while kforge measures.

Other processes slow a timed block down by up to a factor of two, and not both sides of a pair alike. So blocks that
were timed beside other processes are marked.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Self

from kforge.evaluation.constants import HOLD_DEADLINE, LOAD_WINDOW
from kforge.evaluation.processes.freeze import descendants
from kforge.platforms import host

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_QUEUED = Path("/proc/thread-self/schedstat")
_SCHEDULED = 2
"""The kind of a process's clock that counts all of its time on a processor."""


@dataclass(frozen=True)
class LoadSnapshot:
    """Seconds of processor time since boot, of all processes and of ours, on the processors that we may use."""

    busy: float
    ours: float
    at: float

    @classmethod
    def take(cls, pids: Sequence[int]) -> Self | None:
        """Return the state now; None where the kernel does not report it (Linux does), or one of our processes has
        ended.

        Ours are these processes and not their descendants: a helper that a program leaves behind, which works while the
        baseline is timed, must count as load.
        """
        try:
            busy = host.busy_ticks()
            ours = sum(_ticks(pid) for pid in pids)
        except (OSError, ValueError, IndexError):
            return None
        tick = os.sysconf("SC_CLK_TCK")
        return cls(busy / tick, ours / tick, monotonic())


def foreign_share(before: LoadSnapshot | None, after: LoadSnapshot | None) -> float:
    """Share of our processors that others (or the hypervisor) used between two snapshots; 0 where it is not known."""
    if before is None or after is None or after.at <= before.at:
        return 0.0
    foreign = (after.busy - before.busy) - (after.ours - before.ours)
    return max(0.0, foreign / ((after.at - before.at) * host.threads()))


class LoadMeter:
    """The foreign load around each of several moments, such as timed pairs of blocks.

    Linux counts processor time in ticks of ten milliseconds, which is too coarse for one pair of blocks. A pair's load
    is therefore that of a window of some pairs around it.
    """

    def __init__(self, pids: Sequence[int], helped: Callable[[], float] = lambda: 0.0) -> None:
        """`helped`: returns processor seconds of helper processes in timed orders, which count as ours, not as load."""
        self._pids = pids
        self._helped = helped
        self._marks = [self._snapshot()]

    def mark(self) -> None:
        """Note that a pair has ended."""
        self._marks.append(self._snapshot())

    def _snapshot(self) -> LoadSnapshot | None:
        found = LoadSnapshot.take(self._pids)
        return None if found is None else replace(found, ours=found.ours + self._helped())

    @property
    def overall(self) -> float:
        """The foreign share from the first to the last mark."""
        return foreign_share(self._marks[0], self._marks[-1])

    def shares(self) -> list[float]:
        """The foreign share around every pair."""
        return shares_between(self._marks)


def shares_between(marks: Sequence[LoadSnapshot | None]) -> list[float]:
    """Return the foreign share around each interval between two neighbouring marks, over a window of some intervals.

    Where the load was known at first and later is not, the machine counts as busy: a program must not be able to
    disable the meter.
    """
    last, known = len(marks) - 1, bool(marks) and marks[0] is not None
    ends = ((marks[max(0, pair - LOAD_WINDOW)], marks[min(last, pair + 1 + LOAD_WINDOW)]) for pair in range(last))
    return [1.0 if known and None in pair else foreign_share(*pair) for pair in ends]


@dataclass(frozen=True)
class Helpers:
    """Processor seconds of the processes that another process has started."""

    alive: dict[int, float]
    """Seconds of each process, zombies included."""
    ended: float
    """Seconds of the processes that it has waited for."""
    complete: bool = True
    """Whether all were found within the deadline."""

    @classmethod
    def take(cls, pid: int, deadline: float = HOLD_DEADLINE) -> Self:
        end = monotonic() + deadline
        try:
            ended = (_ticks(pid, reaped=True) - _ticks(pid)) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            ended = 0.0
        alive: dict[int, float] = {}
        for each in descendants(pid, deadline):
            if monotonic() > end:
                break
            alive[each] = own_seconds(each) or 0.0
        return cls(alive, ended, complete=monotonic() <= end)

    def of_living(self, before: Helpers) -> float:
        """Return what the processes that live now have worked since then: never more than they did."""
        return sum(max(0.0, seconds - before.alive.get(each, 0.0)) for each, seconds in self.alive.items())

    def of_all(self, before: Helpers) -> float:
        """Return what all have worked since then: never less than they did; infinity where not all were found."""
        if not (self.complete and before.complete):
            return math.inf
        known = sum(seconds for each, seconds in before.alive.items() if each not in self.alive)
        return self.of_living(before) + max(0.0, self.ended - before.ended - known)


def own_seconds(pid: int) -> float | None:
    """Return the processor time of one process without its descendants, in seconds; None where the kernel does not
    report it."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _SCHEDULED) / 1e9  # as clock_getcpuclockid(3) has it
    except (OSError, AttributeError):
        return None


def seconds_by_thread(pid: int) -> dict[str, float]:
    """Return the processor time of each living thread of a process in seconds; nothing where the kernel does not report
    it."""
    try:
        threads = Path(f"/proc/{pid}/task").iterdir()
        return {each.name: int((each / "schedstat").read_text().split()[0]) / 1e9 for each in threads}
    except (OSError, ValueError, IndexError):
        return {}


def critical_seconds(before: dict[str, float], after: dict[str, float], total: float) -> float:
    """Return about how long a process that used `total` processor seconds would have worked with all processors for
    itself: as long as its busiest thread.

    Threads that have ended count as if they had worked one after another. Without a report of threads, all of the
    process counts as one.
    """
    worked = [seconds - before.get(thread, 0.0) for thread, seconds in after.items()]
    if not worked:
        return total
    ended = max(0.0, total - sum(worked))
    return max(max(worked) + ended, total / host.threads())


def queued_seconds() -> float:
    """Return how long this thread has waited for a core since it began; 0 where the kernel does not report it."""
    try:
        return int(_QUEUED.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _ticks(pid: int, *, reaped: bool = False) -> int:
    """Return the processor ticks of a process, optionally with the children that it has waited for."""
    # the name, in parentheses, may hold spaces: fields are counted from behind it
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if reaped else 13]))
