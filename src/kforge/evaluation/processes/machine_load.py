"""Measures how much of the machine other processes use while kforge times programs.

Other processes slow a timed block down by up to a factor of two, and often only one side of a pair. So kforge marks the
blocks that were timed while other processes were busy.
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
"""Clock type in a kernel clock id (CPUCLOCK_SCHED): all processor time of a process."""


@dataclass(frozen=True)
class LoadSnapshot:
    """Processor seconds since boot on the processors that kforge may use: of all processes (`busy`) and of ours
    (`ours`)."""

    busy: float
    ours: float
    at: float
    """When the snapshot was taken, by the monotonic clock."""

    @classmethod
    def take(cls, pids: Sequence[int]) -> Self | None:
        """Return the counters now; None if the kernel does not report them (Linux does), or if one of `pids` has ended.

        Only the processes `pids` count as ours, not their descendants: a helper process that a program leaves behind
        must count as foreign load while the baseline is timed.
        """
        try:
            busy = host.busy_ticks()
            ours = sum(_ticks(pid) for pid in pids)
        except (OSError, ValueError, IndexError):
            return None
        tick = os.sysconf("SC_CLK_TCK")
        return cls(busy / tick, ours / tick, monotonic())


def foreign_share(before: LoadSnapshot | None, after: LoadSnapshot | None) -> float:
    """Return the share of our processors that other processes or the hypervisor used between two snapshots; 0 if
    unknown."""
    if before is None or after is None or after.at <= before.at:
        return 0.0
    foreign = (after.busy - before.busy) - (after.ours - before.ours)
    return max(0.0, foreign / ((after.at - before.at) * host.threads()))


class LoadMeter:
    """Measures the foreign load around each timed pair of blocks.

    Linux counts processor time in ticks of ten milliseconds, which is too coarse for one pair. So the load of a pair is
    measured over a window of several pairs around it.
    """

    def __init__(self, pids: Sequence[int], helped: Callable[[], float] = lambda: 0.0) -> None:
        """`pids` are our processes. `helped` returns the processor seconds of helper processes in timed orders; they
        count as ours."""
        self._pids = pids
        self._helped = helped
        self._marks = [self._snapshot()]

    def mark(self) -> None:
        """Take a snapshot at the end of a pair."""
        self._marks.append(self._snapshot())

    def _snapshot(self) -> LoadSnapshot | None:
        found = LoadSnapshot.take(self._pids)
        return None if found is None else replace(found, ours=found.ours + self._helped())

    @property
    def overall(self) -> float:
        """The share of our processors that other processes used from the first to the last snapshot."""
        return foreign_share(self._marks[0], self._marks[-1])

    def shares(self) -> list[float]:
        """Return for each pair the share of our processors that other processes used in the window of pairs around
        it."""
        return shares_between(self._marks)


def shares_between(marks: Sequence[LoadSnapshot | None]) -> list[float]:
    """Return the foreign share around each interval between two snapshots, over a window of LOAD_WINDOW intervals each
    way.

    If the first snapshot worked and a later one failed, the share is 1: a program must not gain by disabling the meter.
    """
    last, known = len(marks) - 1, bool(marks) and marks[0] is not None
    ends = ((marks[max(0, pair - LOAD_WINDOW)], marks[min(last, pair + 1 + LOAD_WINDOW)]) for pair in range(last))
    return [1.0 if known and None in pair else foreign_share(*pair) for pair in ends]


@dataclass(frozen=True)
class Helpers:
    """Processor seconds of the descendants of a process."""

    alive: dict[int, float]
    """Processor seconds of each descendant by pid, with zombies."""
    ended: float
    """Processor seconds of all descendants that have ended and were waited for."""
    complete: bool = True
    """Whether all descendants were found before the deadline."""

    @classmethod
    def take(cls, pid: int, deadline: float = HOLD_DEADLINE) -> Self:
        """Return the counters of the descendants of `pid` now."""
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
        """Return the seconds that the descendants which live now have worked since `before`: a lower bound for all
        descendants."""
        return sum(max(0.0, seconds - before.alive.get(each, 0.0)) for each, seconds in self.alive.items())

    def of_all(self, before: Helpers) -> float:
        """Return an upper bound of the seconds that all descendants have worked since `before`; infinity if some were
        not found."""
        if not (self.complete and before.complete):
            return math.inf
        known = sum(seconds for each, seconds in before.alive.items() if each not in self.alive)
        return self.of_living(before) + max(0.0, self.ended - before.ended - known)


def own_seconds(pid: int) -> float | None:
    """Return the processor seconds of one process without its descendants; None if the kernel does not report them."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _SCHEDULED) / 1e9  # as clock_getcpuclockid(3) has it
    except (OSError, AttributeError):
        return None


def seconds_by_thread(pid: int) -> dict[str, float]:
    """Return the processor seconds of each living thread of a process, by thread id; empty if the kernel does not
    report them."""
    try:
        threads = Path(f"/proc/{pid}/task").iterdir()
        return {each.name: int((each / "schedstat").read_text().split()[0]) / 1e9 for each in threads}
    except (OSError, ValueError, IndexError):
        return {}


def critical_seconds(before: dict[str, float], after: dict[str, float], total: float) -> float:
    """Estimate the seconds that a process would have worked if it had all processors for itself.

    That is the time of its busiest thread, and at least `total`, its processor seconds, divided by the processors.
    `before` and `after` are from `seconds_by_thread`. Threads that have ended count as if they had worked one after
    another, following the busiest one. If no threads are reported, the whole process counts as one thread.
    """
    worked = [seconds - before.get(thread, 0.0) for thread, seconds in after.items()]
    if not worked:
        return total
    ended = max(0.0, total - sum(worked))
    return max(max(worked) + ended, total / host.threads())


def queued_seconds() -> float:
    """Return the seconds that this thread has waited for a core since it began; 0 if the kernel does not report
    them."""
    try:
        return int(_QUEUED.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _ticks(pid: int, *, reaped: bool = False) -> int:
    """Return the processor ticks of a process; with `reaped`, also those of children that it has waited for."""
    # the name, in parentheses, may hold spaces: fields are counted from behind it
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if reaped else 13]))
