"""Starts and ends kforge's own processes. Each gets its own session, folder, log file and environment.

A process has only the environment variables that its starter passes. The package `sandbox` separates foreign code from
the machine; this module does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kforge.evaluation.constants import KEPT_LOG, MAX_FRAME, MAX_LOG, WORKER_FILE_LIMIT
from kforge.evaluation.processes import freeze
from kforge.evaluation.sandbox.border import private_folders, shareable
from kforge.evaluation.sandbox.forking import forked, write_to
from kforge.evaluation.sandbox.privileges import close_all_but
from kforge.evaluation.transport.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kforge.evaluation.sandbox.cells import Freezer

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOG = "output.log"
"""Name of the file in a process's folder that gets its standard output and standard error."""

STEADY_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MIMALLOC_PURGE_DELAY": "-1",
}
"""Environment variables that make glibc and mimalloc keep freed memory, as the allocator of a long-running program
does. By default glibc returns large blocks to the system and page-faults them in again at the next call. That took four
fifths of a small problem's eager time, favoured every kernel with fewer temporaries, and caused most of the noise
(docs/decisions/008). mimalloc, which torch uses on aarch64, returns memory that was free for ten milliseconds."""

_SPINS = {"aarch64": 600_000}
"""Iterations of libgomp's spin loop in a millisecond, by machine. x86 is not listed, because an iteration pauses there
and takes much longer."""

BRIEF_SPIN = {"GOMP_SPINCOUNT": str(_SPINS.get(platform.machine(), 20_000)), "KMP_BLOCKTIME": "1"}
"""Environment variables that let an idle OpenMP thread spin for about a millisecond and then sleep. A millisecond
bridges the gap between two operators. By default a thread spins for 20 ms on recent x86, and takes a core from the side
that is timed next (docs/decisions/009). Without spinning, a woken thread starts on the core of the thread that woke it,
and waits: this happened in half of all calls on aarch64."""


class Process:
    """A started process, with its channel and its log.

    `wait(seconds)` returns the exit status, negative for a signal, or None if the process still runs. `end(seconds)`
    kills the process first and then does the same. `freezer` stops the process and all its descendants at once; it is
    None if the sandbox layer has no such way.
    """

    def __init__(
        self,
        pid: int,
        channel: Channel,
        log: Path,
        *,
        wait: Callable[[float], int | None],
        end: Callable[[float], int | None],
        freezer: Freezer | None = None,
    ) -> None:
        self.pid = pid
        self.channel = channel
        self._log = log
        self._wait = wait
        self._end = end
        self._freezer = freezer
        self._status: int | None = None
        self._held: list[int] = []

    def hold(self) -> None:
        """Stop the process and all its descendants until `release`. Raises TimeoutError if one of them does not
        stop."""
        try:
            self._held = freeze.hold(self.pid, None if self._freezer is None else self._freezer.freeze)
        except freeze.StillRunningError as error:
            self._held = error.held
            raise

    @property
    def helpers(self) -> list[int]:
        """The descendants of the process when it was last stopped."""
        return self._held

    def release(self) -> None:
        """Continue the process and its descendants."""
        freeze.release(self.pid, self._held)

    def spread(self, *, aside: bool = False) -> freeze.Spread:
        """Pin the threads of the stopped process to separate processors, where they wake up.

        With `aside`, processors of the core that this process runs on are used last.
        """
        return freeze.Spread(self.pid, aside=aside)

    def kill(self, patience: float = 10.0) -> None:
        """Kill the process and its descendants, and reap the process. Does nothing if it is already reaped.

        With a `patience` of 0 seconds the process is killed, and a later call reaps it: a device takes a tenth of a
        second to release its memory.
        """
        if self._status is None:
            self._status = self._end(patience)
        if self._status is not None:
            shorten(self._log)
        self.channel.close()
        if self._freezer is not None:
            self._freezer.close()

    def interrupt(self) -> None:
        """Send SIGKILL to the process, but do not reap it or close its channel, from which another thread may be
        reading."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        """Return whether the process has ended, for example by a crash. Waits up to 0.1 seconds for that."""
        if self._status is None:
            self._status = self._wait(0.1)  # its memory is gone a moment before it can be reaped
        return self._status is not None

    def await_exit(self, seconds: float) -> bool:
        """Close the channel, which makes the process end by itself, and wait for its end. Returns whether it ended
        within these seconds."""
        self.channel.close()
        if self._status is None:
            self.release()
            self._status = self._wait(seconds)
        return self._status is not None

    def cause_of_death(self) -> str:
        """Return how the process ended, as the end of a sentence, such as "was killed by SIGSEGV". Call it after
        EOF."""
        if self._status is None:
            self._status = self._wait(2.0)
        if self._status is None:
            return "closed its channel without ending"
        if self._status < 0:
            return f"was killed by {_signal_name(-self._status)}"
        return f"exited with status {self._status} before it answered"

    def last_words(self, most: int = MAX_LOG) -> str:
        """Return the last `most` bytes of the log, as text; empty if it cannot be read."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - most))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""


def shorten(log: Path, most: int = KEPT_LOG) -> None:
    """Cut a log to its last `most` bytes. Logs stay on the disk until the referee ends. Never raises."""
    with contextlib.suppress(OSError), log.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            file.seek(size - most)
            last = file.read(most)
            file.seek(0)
            file.write(last)
            file.truncate()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def start(
    module: str,
    *,
    work: Path,
    environment: Mapping[str, str],
    max_frame: int = MAX_FRAME,
    wrapper: Sequence[str] = (),
) -> Process:
    """Start `python -m module FD` as a new process, where FD is its end of a new channel.

    The process inherits no other file descriptor. `wrapper` is a command that is put before the interpreter, such as a
    profiler's.
    """
    ours, theirs = socket.socketpair()
    work.mkdir(parents=True, exist_ok=True)
    with theirs, (work / LOG).open("wb") as output:
        popen = subprocess.Popen(
            _command(module, theirs.fileno(), wrapper),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=work,
            env=dict(environment),
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            preexec_fn=partial(confine, os.getpid()),
        )

    def wait(seconds: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return popen.wait(seconds)
        return None

    return _started(popen.pid, ours, work, max_frame, wait)


def execute(module: str, descriptor: int, wrapper: Sequence[str] = ()) -> NoReturn:
    """Replace this process by `python -m module FD`; its pid, environment, sandbox and channel stay the same.

    For tools whose libraries must be loaded first, such as the runtime of a sanitizer.
    """
    os.set_inheritable(descriptor, True)
    command = _command(module, descriptor, wrapper)
    os.execvp(command[0], command)  # noqa: S606 - no shell is needed


def _command(module: str, descriptor: int, wrapper: Sequence[str]) -> list[str]:
    # -P: the current directory never shadows a package
    return [*wrapper, sys.executable, "-P", "-m", module, str(descriptor)]


def fork(task: Callable[[int], None], *, work: Path, keep: Sequence[int] = (), max_frame: int = MAX_FRAME) -> Process:
    """Like `start`, but run `task(FD)` in a fork of this process, which saves the imports.

    This process must have one thread. The fork has the same environment, and of the open file descriptors only those in
    `keep`.
    """
    ours, theirs = socket.socketpair()
    work.mkdir(parents=True, exist_ok=True)
    parent = os.getpid()

    def begin() -> None:
        settle(parent, work, work / LOG, (theirs.fileno(), *keep))
        task(theirs.fileno())

    with theirs:
        pid = forked(begin)

    def wait(seconds: float) -> int | None:
        end = time.monotonic() + seconds
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                return None
            time.sleep(0.002)

    return _started(pid, ours, work, max_frame, wait)


def settle(parent: int, work: Path, log: Path, keep: Sequence[int]) -> None:
    """Prepare a new fork of one of our processes: a new session, its own log and folder, limits, and only the
    descriptors in `keep`."""
    os.setsid()
    write_to(log)
    close_all_but((0, 1, 2, *keep))
    confine(parent)
    os.chdir(work)


def kill_tree(pid: int) -> None:
    """Kill one of our processes and all its descendants."""
    for child in freeze.descendants(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _started(pid: int, ours: socket.socket, work: Path, max_frame: int, wait: Callable[[float], int | None]) -> Process:
    def end(seconds: float) -> int | None:
        kill_tree(pid)
        return wait(seconds)

    return Process(pid, Channel(ours, max_frame=max_frame), work / LOG, wait=wait, end=end)


def confine(parent: int) -> None:
    """Limit core dumps and file sizes of this process, and let it die with its parent. Call it before foreign code
    runs."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (WORKER_FILE_LIMIT, WORKER_FILE_LIMIT))
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent was killed before PDEATHSIG was set
            os._exit(1)
        # orphans stay in the tree of this process, where they can be stopped and killed
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def import_path() -> str:
    """Return the value of PYTHONPATH with which a child finds the same kforge and the same torch.

    Workers may read every folder on it. So folders that hold something private are left out: the folder where the user
    started `python -m kforge`, or the home folder for a script in it.
    """
    private = private_folders()
    ours = Path(__file__).parents[3]
    entries = (entry for entry in sys.path if entry and Path(entry).is_dir())
    return os.pathsep.join(entry for entry in entries if Path(entry) == ours or shareable(entry, private))


def common_environment(*, tool_path: str, threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that all workers have: tools, import path, threads, and nothing secret.

    A referee starts with the same variables, because the fork server of its workers is a fork of it. It receives the
    user's environment later.
    """
    return {
        "PATH": tool_path,
        "LANG": "C.UTF-8",
        "PYTHONPATH": import_path(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(threads),
        **STEADY_ALLOCATOR,
        **BRIEF_SPIN,
        **extra,
    }


def private_environment(work: Path, builds: Path) -> dict[str, str]:
    """Return the environment variables that name the folders where one worker may write.

    `builds` is kept for the next worker of the same program.
    """
    return {
        "HOME": str(work),
        "TMPDIR": str(work),
        "TORCHINDUCTOR_CACHE_DIR": str(builds / "inductor"),
    }
