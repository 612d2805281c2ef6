"""Holding a process and everything it started still: a program works when it is told to, and at no other time.

Without this a program could compute while its inputs are being written, go on after it said it was done, or slow the
other side down while that one is timed. Descendants are found through the kernel's own list of children; those whose
parent ended stay in it, because workers adopt their orphans (see `sandbox.layers`).
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from kforge.platforms import host

_PROC = Path("/proc")
_AT_REST = frozenset("TtZXD")
"""Stopped, traced, zombie, dead, or in the kernel's hands: one that waits for its stopped vfork child never gets
further than that, and any other stops before it is back in its own code."""


def hold(pid: int, deadline: float = 2.0) -> list[int]:
    """Stop the process's group and all its descendants; when this returns, none of their threads runs.

    Returns the descendants, for `release`. One that is gone is at rest. Raises TimeoutError.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGSTOP)
    held: list[int] = []
    while found := [child for child in descendants(pid) if child not in held]:  # one may have forked meanwhile
        for child in found:
            _signal(child, signal.SIGSTOP)
        held += found
    end = time.monotonic() + deadline
    for process in (pid, *held):
        while not _rests(process):
            if time.monotonic() > end:
                raise TimeoutError(f"process {process} does not stop")
    return held


def release(pid: int, held: list[int]) -> None:
    """Let the process and its held descendants go on."""
    for child in held:
        _signal(child, signal.SIGCONT)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGCONT)


def spread(pid: int, *, aside: bool = False) -> dict[int, set[int]]:
    """Let each thread of a held process wake up on a processor of its own; returns where each may run, for `roam`.

    `aside`: those of the core that we run on come last.
    Threads that are continued together tend to wake up on one core, and the scheduler takes milliseconds to part them:
    half of the blocks took two to four times as long (docs/log.md).
    """
    places: dict[int, set[int]] = {}
    ours = host.core() if aside else frozenset()
    processors = itertools.cycle(sorted(host.processors(), key=lambda one: (one in ours, one)))
    for thread in sorted(int(task.name) for task in _tasks(pid)):
        with suppress(ProcessLookupError, PermissionError):
            places[thread] = host.processors(thread)
            host.pin(thread, {next(processors)})
    return places


def roam(pid: int, places: dict[int, set[int]]) -> None:
    """Let threads run wherever they could before `spread`. Now that they are awake, they stay where they are.

    One that was born meanwhile has its parent's narrow place, and would keep it for good: it may run where the process
    may. Those known come first, so that none is born into a narrow place any more when the others are looked up.
    """
    for thread, processors in places.items():
        with suppress(ProcessLookupError, PermissionError):
            host.pin(thread, processors)
    for thread in {int(task.name) for task in _tasks(pid)} - set(places) if places else ():
        with suppress(ProcessLookupError, PermissionError):
            host.pin(thread, places.get(pid, host.processors()))


def descendants(pid: int) -> list[int]:
    """Children, their children and so on; empty where the kernel does not tell (it does on Linux)."""
    found: list[int] = []
    unseen = [pid]
    while unseen:  # no recursion: a program may fork a chain that is deeper than our stack
        for task in _tasks(unseen.pop()):
            with suppress(OSError):
                children = [int(child) for child in (task / "children").read_text().split()]
                found += children
                unseen += children
    return found


def _rests(pid: int) -> bool:
    for task in _tasks(pid):
        try:
            state = (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue  # that thread has ended
        if state not in _AT_REST:
            return False
    return True


def _tasks(pid: int) -> list[Path]:
    try:
        return list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return []


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
