"""Stops a process and everything it started: a program works when it is told to, and at no other time.

Without this a program could compute while its inputs are being written, go on after it said it was done, or slow the
other side down while that one is timed. Descendants are found through the kernel's lists of children. Those whose
parent ended stay in these lists, because workers adopt their orphans and cannot prevent that (see `sandbox.seccomp`).

The kernel shows one thread at a time, and a program may change while it is examined. So it is examined twice. In the
first pass every thread is seen at rest. If no thread was scheduled before its second examination, there was a moment in
between at which all of them rested, and where nothing runs, nothing is continued or started.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kforge.evaluation.constants import HOLD_DEADLINE
from kforge.evaluation.sandbox import syscalls
from kforge.platforms import host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_STOPPED, _ENDED, _UNINTERRUPTIBLE = b"Tt", b"ZX", b"D"
_STATE, _THREADS = 0, 17
"""Field numbers of a stat file, counted after the name."""
_PATIENCE = 0.02
"""Seconds after which a thread that does not rest is told to stop again: another process may have continued it."""


class StillRunningError(TimeoutError):
    """A process, or one that it started, did not stop before the deadline."""

    def __init__(self, message: str, held: list[int]) -> None:
        super().__init__(message)
        self.held = held
        """The descendants that were told to stop, for `release`."""


def hold(pid: int, freeze: Callable[[float], None] | None = None, deadline: float = HOLD_DEADLINE) -> list[int]:
    """Stop the process's group and all its descendants; when this returns, none of their threads runs.

    Returns the descendants, for `release`. A process that is gone is at rest. `freeze` stops all of them atomically,
    within the seconds that it is given, where there is a way to (`sandbox.cells`). It is called when signals to one
    process after the other were not enough, as with processes that replace themselves. Raises StillRunningError.
    """
    tree = _Tree(pid, time.monotonic() + deadline)
    for attempt in itertools.count():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGSTOP)
        if attempt and freeze is not None:
            with suppress(TimeoutError):
                freeze(tree.seconds_left())
        with suppress(_Moved):
            tree.see_at_rest()
            tree.confirm()
            return tree.descendants()
        if not tree.seconds_left():
            break
    raise StillRunningError(f"process {pid}, or one that it started, does not stop", tree.told())


def release(pid: int, held: list[int]) -> None:
    """Continue the process and its held descendants."""
    for child in held:
        _signal(child, signal.SIGCONT)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGCONT)


class _Moved(Exception):
    """A thread runs, or has run between two examinations."""


class _Rest(NamedTuple):
    """Values that do not change while a thread rests."""

    turns: bytes
    """How long and how often it has run."""
    children: bytes


class _Tree:
    """The threads of a process and its descendants, each of which is stopped when it is found."""

    def __init__(self, pid: int, end: float) -> None:
        self._pid = pid
        self._end = end
        self._resting: dict[int, dict[str, _Rest]] = {}
        """State by process and thread, without threads that have ended."""
        self._listed: dict[int, set[str]] = {}
        """All threads of the processes that have several."""
        self._told = set[int]()

    def seconds_left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def descendants(self) -> list[int]:
        """The processes of the last pass, without those that have ended."""
        return [process for process in self._resting if process != self._pid]

    def told(self) -> list[int]:
        """The descendants that were ever told to stop."""
        return list(self._told)

    def see_at_rest(self) -> None:
        """Examine every thread. Raises _Moved."""
        self._resting, self._listed = {}, {}
        unseen = [self._pid]
        while unseen:  # no recursion: a program may fork a chain that is deeper than our stack
            process = unseen.pop()
            if process != self._pid:
                _signal(process, signal.SIGSTOP)
                self._told.add(process)
            leader, threads = self._await_rest(process, str(process))
            others = set[str]()
            if threads > 1:
                self._listed[process] = set(_listed(process))
                others = self._listed[process] - {str(process)}
            rests = {str(process): leader} | {thread: self._await_rest(process, thread)[0] for thread in others}
            resting = {thread: rest for thread, rest in rests.items() if rest is not None}
            if resting:  # not a zombie
                self._resting[process] = resting
                unseen += [int(child) for rest in resting.values() for child in rest.children.split()]

    def confirm(self) -> None:
        """Examine again. Raises _Moved when a thread has run since `see_at_rest`, or was not seen by it."""
        for process, threads in self._listed.items():
            if not threads.issuperset(_listed(process)):
                raise _Moved
        for process, resting in self._resting.items():
            for thread, rest in resting.items():
                if not self.seconds_left() or _rest(process, thread) != rest:
                    raise _Moved

    def _await_rest(self, process: int, thread: str) -> tuple[_Rest | None, int]:
        """Return the state of a thread at rest, None when it has ended; and the number of threads of its process.

        Raises _Moved when it does not rest soon.
        """
        end = time.monotonic() + _PATIENCE
        while self.seconds_left():
            fields = _stat(process, thread)
            if fields is None:
                return None, 1
            state = fields[_STATE]
            if state in _ENDED:
                return None, int(fields[_THREADS])
            if state in _STOPPED or (state == _UNINTERRUPTIBLE and _waits_for_its_child(process, thread)):
                return _rest(process, thread), int(fields[_THREADS])
            if time.monotonic() > end:
                break
            os.sched_yield()  # it may need this core to reach the point where it stops
        raise _Moved


def _waits_for_its_child(process: int, thread: str) -> bool:
    """Return whether a thread waits until the child of its vfork executes something or ends: it rests while that child
    does.

    Any other thread that cannot be interrupted is inside a system call or a page fault, and goes on by itself.
    """
    try:
        number, flags, *_ = _read(process, thread, "syscall").split()
        is_vfork = int(number) == syscalls.number("vfork")
        is_vfork |= int(number) == syscalls.number("clone") and bool(int(flags, 16) & syscalls.CLONE_VFORK)
        return is_vfork and bool(_read(process, thread, "children"))
    except (OSError, ValueError):  # it runs, or has ended
        return False


def _rest(process: int, thread: str) -> _Rest:
    """Return the state of a thread. Raises _Moved when the thread is gone."""
    try:
        return _Rest(_read(process, thread, "schedstat"), _read(process, thread, "children"))
    except OSError:
        raise _Moved from None


class Spread:
    """Places the threads of a held process on separate processors, where they wake up and stay until `end`.

    Threads that are continued together tend to wake up on one core, and the scheduler takes milliseconds to separate
    them: half of the blocks took two to four times as long. The same happens to a thread that sleeps and is woken up by
    another one while we run on its core (docs/decisions/010). Where there are more threads than processors, those that
    ran longest so far get their own: they compute, while a driver's thread waits.
    """

    def __init__(self, pid: int, *, aside: bool = False) -> None:
        """`aside`: the processors of the core that we run on are used last."""
        self._pid = pid
        self._places: dict[int, set[int]] = {}
        """The processors on which each thread may run."""
        ours = host.core() if aside else frozenset()
        processors = itertools.cycle(sorted(host.processors(), key=lambda one: (one in ours, one)))
        for thread in sorted(map(int, _listed(pid)), key=partial(_idleness, pid)):
            with suppress(ProcessLookupError, PermissionError):
                self._places[thread] = host.processors(thread)
                host.pin(thread, {next(processors)})

    def begin(self) -> None:
        """Let the main thread run on any allowed processor once it is awake: it stays, and threads that it starts may
        go anywhere."""
        self._free([self._pid])

    def end(self) -> None:
        """Let all threads run on any allowed processor.

        A thread that was born meanwhile may have its parent's single processor, and would keep it: it gets the
        processors of its process.
        """
        self._free(self._places)
        self._free(set(map(int, _listed(self._pid))) - set(self._places) if self._places else ())

    def _free(self, threads: Iterable[int]) -> None:
        anywhere = self._places.get(self._pid, host.processors())
        for thread in threads:
            with suppress(ProcessLookupError, PermissionError):
                host.pin(thread, self._places.get(thread, anywhere))


def _idleness(pid: int, thread: int) -> tuple[int, int]:
    """Return a sort key that puts the threads that ran longest first."""
    try:
        return -int(_read(pid, str(thread), "schedstat").split()[0]), thread
    except (OSError, ValueError, IndexError):  # it has ended, or the kernel does not count
        return 0, thread


def descendants(pid: int, deadline: float = HOLD_DEADLINE) -> list[int]:
    """Return children, their children and so on, zombies as well; empty where the kernel does not list them (Linux
    does).

    Where there is no end to them, those found before the deadline.
    """
    end = time.monotonic() + deadline
    found: list[int] = []
    unseen = [pid]
    while unseen and time.monotonic() < end:
        process = unseen.pop()
        fields = _stat(process, str(process))
        if fields is None or (fields[_STATE] in _ENDED and fields[_THREADS] == b"1"):
            continue
        for thread in _listed(process) if fields[_THREADS] != b"1" else (str(process),):
            with suppress(OSError):
                children = [int(child) for child in _read(process, thread, "children").split()]
                found += children
                unseen += children
    return found


def _stat(process: int, thread: str) -> list[bytes] | None:
    """Return the fields of a thread's stat file from the state on; None when it is gone."""
    try:
        # the name, in parentheses, may hold anything
        return _read(process, thread, "stat").rpartition(b")")[2].split()
    except OSError:
        return None


def _read(process: int, thread: str, name: str) -> bytes:
    # not by pathlib, which takes four times as long: the clock of a timed block runs meanwhile
    descriptor = os.open(f"/proc/{process}/task/{thread}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = part = os.read(descriptor, 1 << 16)
        while part and name == "children":  # the kernel gives a page at a time
            part = os.read(descriptor, 1 << 16)
            text += part
        return text
    finally:
        os.close(descriptor)


def _listed(pid: int) -> list[str]:
    """Return the threads of a process; none when it is gone."""
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - as above
    except OSError:
        return []


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
