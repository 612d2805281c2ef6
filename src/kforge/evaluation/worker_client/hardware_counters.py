"""Counts cycles, instructions and cache misses of a worker's threads, by the Linux kernel's performance events.

The referee counts from outside, so a program cannot change the figures. Many virtual machines have no counters, and
many systems show them to administrators only. Then NoCounters is raised with the reason.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

HARDWARE, SOFTWARE = 0, 1
"""Kinds of events: those of the processor, and those that the kernel counts itself."""
CYCLES, INSTRUCTIONS, MISSES, MISPREDICTED = "cycles", "instructions", "cache misses", "mispredicted branches"
_ATTRIBUTES = struct.Struct("IIQQQQQIIQ")
"""The first version of the kernel's `perf_event_attr`, which every kernel accepts."""
_TIMES = 1 | 2
"""Asks for the time that an event was enabled and really counted: the processor counts only a few at once."""
_DISABLED, _INHERIT, _USER_ONLY = 1, 2, (1 << 5) | (1 << 6)
"""Bits of the attributes: counts only when enabled, also in later threads, and neither in the kernel nor in a
hypervisor."""
_CLOSE_ON_EXEC = 8
_ENABLE, _DISABLE = 0x2400, 0x2401
_SYSTEM_CALL = {"x86_64": 298, "aarch64": 241}
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_ABSENT = frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class Event(NamedTuple):
    """An event that can be counted, by the kernel's numbers."""

    name: str
    kind: int
    number: int


EVENTS = (
    Event(CYCLES, HARDWARE, 0),
    Event(INSTRUCTIONS, HARDWARE, 1),
    Event(MISSES, HARDWARE, 3),
    Event(MISPREDICTED, HARDWARE, 5),
)


class NoCounters(Exception):
    """Events cannot be counted here. The message says why, in one line."""


class Counters:
    """Counts events in all threads of a process, between `start` and `stop`."""

    def __init__(self, opened: dict[str, list[int]]) -> None:
        self._opened = opened

    @classmethod
    def open(cls, pid: int, events: tuple[Event, ...] = EVENTS) -> Self:
        """Prepare to count. Events that the processor does not have are left out. Raises NoCounters if none can be
        counted."""
        number = _SYSTEM_CALL.get(platform.machine())
        try:
            threads = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        except OSError:
            number = None
        if number is None:
            raise NoCounters("this system does not offer them")
        counters, refused = cls({}), 0
        for event in events:
            for thread in threads:
                descriptor = _opened(number, event, thread)
                if descriptor < 0:
                    refused = refused or -descriptor
                    break
                counters._opened.setdefault(event.name, []).append(descriptor)
        if not counters._opened:
            raise NoCounters(_why(refused))
        return counters

    def start(self) -> None:
        self._order(_ENABLE)

    def stop(self) -> dict[str, float]:
        """Stop counting, and return the number of each event. An event that was counted for a part of the time is
        scaled up."""
        self._order(_DISABLE)
        return {name: sum(map(_count, descriptors)) for name, descriptors in self._opened.items()}

    def close(self) -> None:
        for descriptors in self._opened.values():
            for descriptor in descriptors:
                os.close(descriptor)
        self._opened = {}

    def _order(self, order: int) -> None:
        for descriptors in self._opened.values():
            for descriptor in descriptors:
                with suppress(OSError):  # the thread has ended
                    fcntl.ioctl(descriptor, order, 0)


def _opened(number: int, event: Event, thread: int) -> int:
    """Return a file descriptor that counts an event in a thread; on failure, the negative error number."""
    flags = _DISABLED | _INHERIT | _USER_ONLY
    attributes = _ATTRIBUTES.pack(event.kind, _ATTRIBUTES.size, event.number, 0, 0, _TIMES, flags, 0, 0, 0)
    library = ctypes.CDLL(None, use_errno=True)
    given = ctypes.create_string_buffer(attributes)
    found = int(library.syscall(number, given, thread, -1, -1, _CLOSE_ON_EXEC))
    return found if found >= 0 else -ctypes.get_errno()


def _count(descriptor: int) -> float:
    count, enabled, running = struct.unpack("QQQ", os.read(descriptor, 24))
    return count * enabled / running if running else 0.0


def _why(refused: int) -> str:
    """Return why the kernel refuses to count, from its error number."""
    if refused in _ABSENT:
        return "the processor shows none to this machine, as in most virtual machines"
    with suppress(OSError):
        return f"only administrators may count (perf_event_paranoid is {_PARANOID.read_text().strip()})"
    return f"the kernel refuses: {os.strerror(refused)}"
