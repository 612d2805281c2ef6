"""Stops a process with all its descendants, so that a program computes only while it has an order.

A program that ran at other times could compute while its inputs are written, go on after it reported the end, or slow
the other side down while that side is timed. Descendants are found in the kernel's lists of children. Orphans stay in
these lists, because workers adopt them and cannot refuse (see `sandbox.seccomp`).

The kernel shows one thread at a time, and a program may change while its threads are examined. So they are examined
twice. The first pass waits until it has seen each thread stopped. If no thread was scheduled before the second pass
examined it, there was a moment in between at which all were stopped. From then on no thread can start or continue
another one.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kforge.evaluation.constants import HOLD_DEADLINE
from kforge.evaluation.sandbox import syscalls
from kforge.platforms import host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_STOPPED, _ENDED, _UNINTERRUPTIBLE = b"Tt", b"ZX", b"D"
_STATE, _THREADS = 0, 17
"""Field numbers in a `stat` file of /proc, counted from behind the name in parentheses."""
_PATIENCE = 0.02
"""Seconds after which a thread that still runs gets SIGSTOP again: another process may have sent SIGCONT to it."""


class StillRunningError(TimeoutError):
    """A process or one of its descendants did not stop before the deadline."""

    def __init__(self, message: str, held: list[int]) -> None:
        super().__init__(message)
        self.held = held
        """The descendants that were sent SIGSTOP; pass them to `release`."""


def hold(pid: int, freeze: Callable[[float], None] | None = None, deadline: float = HOLD_DEADLINE) -> list[int]:
    """Stop the process's group and all its descendants. When this returns, none of their threads runs.

    Returns the descendants, for `release`. A process that has ended counts as stopped. `freeze(seconds)` stops all of
    them at once, if the sandbox has a way (`sandbox.cells`). It is called if signals to one process after the other
    were not enough, for example because processes keep replacing themselves. Raises StillRunningError if
    some still run after that.
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
    """Send SIGCONT to the process and to its stopped descendants."""
    for child in held:
        _signal(child, signal.SIGCONT)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGCONT)


class _Moved(Exception):
    """A thread runs, or has run between the two examinations."""


class _Rest(NamedTuple):
    """Values of a thread that change whenever the thread runs."""

    turns: bytes
    """The thread's `schedstat`: how long and how often it has run."""
    children: bytes
    """The pids of the thread's children."""


class _Tree:
    """The threads of a process and of its descendants. Each descendant gets SIGSTOP when it is found."""

    def __init__(self, pid: int, end: float) -> None:
        self._pid = pid
        self._end = end
        self._resting: dict[int, dict[str, _Rest]] = {}
        """The threads that were seen stopped, by process and thread. Threads that have ended are left out."""
        self._listed: dict[int, set[str]] = {}
        """All thread ids of each process with several threads."""
        self._told = set[int]()

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def descendants(self) -> list[int]:
        """Return the descendants that the last pass found alive."""
        return [process for process in self._resting if process != self._pid]

    def told(self) -> list[int]:
        """Return all descendants that were ever sent SIGSTOP."""
        return list(self._told)

    def see_at_rest(self) -> None:
        """First pass: wait until each thread is seen stopped. Raises _Moved if one does not stop soon."""
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
        """Second pass. Raises _Moved if a thread has run since `see_at_rest`, or if that pass did not see it."""
        for process, threads in self._listed.items():
            if not threads.issuperset(_listed(process)):
                raise _Moved
        for process, resting in self._resting.items():
            for thread, rest in resting.items():
                if not self.seconds_left() or _rest(process, thread) != rest:
                    raise _Moved

    def _await_rest(self, process: int, thread: str) -> tuple[_Rest | None, int]:
        """Wait until a thread is stopped. Returns its values, or None if it has ended; and its process's number of
        threads.

        Raises _Moved if it does not stop soon.
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
    """Return whether a thread is suspended by its own vfork until the child calls exec or ends. It then counts as
    stopped.

    Any other uninterruptible thread is in a system call or a page fault, and will run again by itself.
    """
    try:
        call, first, *_ = _read(process, thread, "syscall").split()
        number, argument = int(call), int(first, 16)
        if number == syscalls.number("clone3"):  # only without a sandbox, because sandboxes refuse clone3
            argument = _word(process, argument)
        is_vfork = number == syscalls.number("vfork")
        is_clone = number in {syscalls.number("clone"), syscalls.number("clone3")}
        is_vfork |= is_clone and bool(argument & syscalls.CLONE_VFORK)
        return is_vfork and bool(_read(process, thread, "children"))
    except (OSError, ValueError):  # it runs, or has ended
        return False


def _word(process: int, address: int) -> int:
    """Return eight bytes of a process's memory. clone3 has its flags there. Raises OSError."""
    with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return int.from_bytes(memory.read(8), sys.byteorder)


def _rest(process: int, thread: str) -> _Rest:
    """Return the values of a thread that change when it runs. Raises _Moved if the thread is gone."""
    try:
        return _Rest(_read(process, thread, "schedstat"), _read(process, thread, "children"))
    except OSError:
        raise _Moved from None


class Spread:
    """Pins each thread of a stopped process to its own processor, until `end`.

    Threads that are continued together tend to wake up on one core, and the scheduler takes milliseconds to separate
    them: half of the timed blocks took two to four times as long. The same happens to a thread that is woken while the
    referee runs on its core (docs/decisions/010). If there are more threads than processors, the threads with the most
    processor time come first: they compute, while for example a driver's thread only waits.
    """

    def __init__(self, pid: int, *, aside: bool = False) -> None:
        """With `aside`, the processors of the core that this process runs on are used last."""
        self._pid = pid
        self._places: dict[int, set[int]] = {}
        """For each thread, the processors it was allowed before it was pinned."""
        ours = host.core() if aside else frozenset()
        processors = itertools.cycle(sorted(host.processors(), key=lambda one: (one in ours, one)))
        for thread in sorted(map(int, _listed(pid)), key=partial(_idleness, pid)):
            with suppress(ProcessLookupError, PermissionError):
                self._places[thread] = host.processors(thread)
                host.pin(thread, {next(processors)})

    def begin(self) -> None:
        """Unpin the main thread once it runs. It stays where it is, and threads that it starts are not pinned."""
        self._free([self._pid])

    def end(self) -> None:
        """Unpin all threads.

        A thread that was started meanwhile has inherited a single processor from its parent. It gets all processors of
        its process.
        """
        self._free(self._places)
        self._free(set(map(int, _listed(self._pid))) - set(self._places) if self._places else ())

    def _free(self, threads: Iterable[int]) -> None:
        anywhere = self._places.get(self._pid, host.processors())
        for thread in threads:
            with suppress(ProcessLookupError, PermissionError):
                host.pin(thread, self._places.get(thread, anywhere))


def _idleness(pid: int, thread: int) -> tuple[int, int]:
    """Return a sort key that puts the threads with the most processor time first."""
    try:
        return -int(_read(pid, str(thread), "schedstat").split()[0]), thread
    except (OSError, ValueError, IndexError):  # it has ended, or the kernel does not count
        return 0, thread


def descendants(pid: int, deadline: float = HOLD_DEADLINE) -> list[int]:
    """Return the children of a process, their children and so on, with zombies; empty if the kernel does not list
    children.

    The search ends at the deadline, because a program may start processes without end.
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
    """Return the fields of a thread's `stat` file from the state on; None if the thread is gone."""
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
    """Return the thread ids of a process; empty if it is gone."""
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - faster than pathlib, as in `_read`
    except OSError:
        return []


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
