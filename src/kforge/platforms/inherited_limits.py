"""Collects everything that a forked process inherits and that changes its speed: processors, priority, limits and
control groups."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

from kforge.platforms import host

_GROUP_LIMITS = (
    "cpu.max", "cpu.weight", "cpu.idle", "io.max", "memory.high", "memory.max", "memory.swap.max",
    "cpu.cfs_quota_us", "cpu.shares", "memory.limit_in_bytes",
)  # fmt: skip
"""Files of a control group that limit the speed or memory of its processes. The last three are of cgroup version 1."""
_NO_LIMIT = frozenset({"", "max", "max 100000", "0", "-1", "100", "1024", "9223372036854771712"})
"""Contents of a control group's file that mean that there is no limit."""


def of_process() -> list[object]:
    """Return the processors, priority and resource limits that a fork inherits from this process."""
    names = {name for name in dir(resource) if name.startswith("RLIMIT_")}
    names -= {"RLIMIT_CORE", "RLIMIT_FSIZE"}  # every referee sets these itself
    limits = [(name, resource.getrlimit(getattr(resource, name))) for name in sorted(names)]
    scheduled: tuple[int, ...] = ()
    if hasattr(os, "sched_getscheduler"):  # macOS has no such functions, and one policy for all processes
        scheduled = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    return [sorted(host.processors()), (os.getpriority(os.PRIO_PROCESS, 0), *scheduled), limits]


def of_groups(own: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> list[str]:
    """Return the limits of this process's control groups and of the groups above them.

    The groups' paths are not included, since every terminal has a group of its own.
    """
    found = set()
    for line in _read(own).splitlines():
        _, controllers, path = line.split(":", 2)
        root = mounted / controllers  # version 2 has one folder for all controllers
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                found |= {f"{name} {said}" for name in _GROUP_LIMITS if (said := _read(folder / name)) not in _NO_LIMIT}
    return sorted(found)


def _read(path: Path) -> str:
    with suppress(OSError, UnicodeError):
        return path.read_text().strip()
    return ""
