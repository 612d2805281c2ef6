"""How much of the machine others used while we measured: a speedup taken on a busy machine says so."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

_STAT = Path("/proc/stat")
_QUEUED = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True)
class Snapshot:
    """Seconds of processor time since boot, by everybody and by us, and when."""

    busy: float
    ours: float
    at: float

    @classmethod
    def take(cls, pids: Sequence[int]) -> Self | None:
        """None where the kernel does not tell (it does on Linux), or one of us is gone."""
        try:
            user, nice, system, _, _, irq, softirq, steal = (
                int(ticks) for ticks in _STAT.read_text().split("\n", 1)[0].split()[1:9]
            )
            ours = sum(_own_ticks(pid) for pid in pids)
        except (OSError, ValueError, IndexError):
            return None
        tick = os.sysconf("SC_CLK_TCK")
        return cls((user + nice + system + irq + softirq + steal) / tick, ours / tick, monotonic())


def foreign_share(before: Snapshot | None, after: Snapshot | None) -> float:
    """Share of all processors that others (or the hypervisor) had between two snapshots; 0 where it is not known."""
    if before is None or after is None or after.at <= before.at:
        return 0.0
    foreign = (after.busy - before.busy) - (after.ours - before.ours)
    return max(0.0, foreign / ((after.at - before.at) * (os.cpu_count() or 1)))


def queued_seconds() -> float:
    """How long this thread has waited for a core since it began; 0 where the kernel does not tell."""
    try:
        return int(_QUEUED.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _own_ticks(pid: int) -> int:
    # the name, in parentheses, may hold spaces: fields are counted from behind it
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
