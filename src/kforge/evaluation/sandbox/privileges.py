"""Functions by which a process gives up capabilities, resources and open files before it runs foreign code."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.evaluation.constants import WORKER_FILE_LIMIT, WORKER_OPEN_FILES, WORKER_PROCESSES
from kforge.evaluation.sandbox import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterable

_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")
_CLEAR_ALL = 4


def close_all_but(kept: Iterable[int]) -> None:
    """Close every file descriptor except these. A fork would otherwise keep all descriptors of its parent."""
    low = 0
    for descriptor in sorted(kept):
        if low < descriptor:  # closerange(0, 0) would close all descriptors
            os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def limit(processes: int) -> None:
    """Set resource limits: no core files, no huge files, a number of processes and open files.

    The address space is not limited, because the drivers of accelerators reserve terabytes of it.
    """
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, WORKER_FILE_LIMIT),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_NOFILE, WORKER_OPEN_FILES),
    ):
        hard = resource.getrlimit(what)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (value, value))


def process_limit() -> int:
    """Return the value of RLIMIT_NPROC that allows workers WORKER_PROCESSES processes.

    Without namespaces the limit applies to all processes of the user, so the user's present processes are added.
    """
    mine = 0
    for process in Path("/proc").glob("[0-9]*/task"):
        try:
            if process.stat().st_uid == os.getuid():
                mine += process.stat().st_nlink - 2
        except OSError:  # it ended meanwhile
            continue
    return mine + WORKER_PROCESSES


def volunteer_for_the_oom_killer(process: int | None = None) -> None:
    """Make the kernel kill this process, or `process`, first when memory runs out. Raises OSError if the kernel
    refuses.

    If we have CAP_SYS_RESOURCE outside any user namespace, the process itself cannot change this back.
    """
    Path(f"/proc/{process or 'self'}/oom_score_adj").write_text("1000")


def bound() -> None:
    """Drop the capability bounding set, if this user may. For other users no_new_privs has the same effect."""
    for capability in range(int(_LAST_CAPABILITY.read_text()) + 1):
        with contextlib.suppress(PermissionError):
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)


def drop_all() -> None:
    """Give up every capability permanently, also as root. No program that is executed later can gain one."""
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.prctl(syscalls.PR_CAP_AMBIENT, _CLEAR_ALL)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    syscalls.call("capset", header, bytes(24))
    # after a change of user, a process cannot read its own /proc/self, which compilers and profilers need
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
