"""Starts and ends processes, each with only the environment that is passed, a folder, a log and a session.

The processes started here are kforge's own. `sandbox` builds what separates foreign code from the machine.
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

STEADY_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MIMALLOC_PURGE_DELAY": "-1",
}
"""glibc keeps the memory it freed, as the allocator of a long-running program does. By default it gives large blocks
back to the system and faults them in again at the next call: that took four fifths of a small problem's eager time
here, flattered every kernel with fewer temporaries, and was most of the noise (docs/decisions/008). Where torch's
tensors come from mimalloc (aarch64), that does the same with what has been free for ten milliseconds."""

_SPINS = {"aarch64": 600_000}
"""Turns of libgomp's loop that take a millisecond, where they differ from x86, on which each turn pauses."""

BRIEF_SPIN = {"GOMP_SPINCOUNT": str(_SPINS.get(platform.machine(), 20_000)), "KMP_BLOCKTIME": "1"}
"""An idle OpenMP thread spins for about a millisecond, which bridges the gap between two operators, and then sleeps.
By default it spins for 20 ms on recent x86, and takes a core from the side that is timed next (docs/decisions/009). A
thread that sleeps at once wakes up on the core of the thread that woke it, and waits for it: half of all calls on
aarch64 did."""


class Process:
    """A started process with its channel.

    `wait` returns its exit status within the given seconds: negative for a signal, None while it runs. `end` kills it
    first. `freezer` stops everything that it started at once, where the sandbox layer supports it.
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
        """Stop it and everything it started, until `release`. Raises TimeoutError when something does not stop."""
        try:
            self._held = freeze.hold(self.pid, None if self._freezer is None else self._freezer.freeze)
        except freeze.StillRunningError as error:
            self._held = error.held
            raise

    @property
    def helpers(self) -> list[int]:
        """The processes that it had started when it was last held."""
        return self._held

    def release(self) -> None:
        freeze.release(self.pid, self._held)

    def spread(self, *, aside: bool = False) -> freeze.Spread:
        """While it is held: let its threads wake up on separate processors.

        `aside`: on processors where this process does not run.
        """
        return freeze.Spread(self.pid, aside=aside)

    def kill(self, patience: float = 10.0) -> None:
        """End the process and what it started, and reap it. Does nothing to one that is reaped already.

        With `patience` false, the next call reaps it: a device takes a tenth of a second to clean up.
        """
        if self._status is None:
            self._status = self._end(patience)
        if self._status is not None:
            shorten(self._log)
        self.channel.close()
        if self._freezer is not None:
            self._freezer.close()

    def interrupt(self) -> None:
        """Kill the process and leave the rest to `kill`: another thread may still read from its channel."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def leave(self, seconds: float) -> str:
        """Close the channel, and wait for the process to end by itself. Returns the end of its log."""
        self.channel.close()
        if self._status is None:
            self.release()
            self._status = self._wait(seconds)
        return self.last_words()

    def has_ended(self) -> bool:
        """Return whether it is gone without having been killed by us."""
        if self._status is None:
            self._status = self._wait(0.1)  # its memory is gone a moment before it can be reaped
        return self._status is not None

    def finish(self, seconds: float) -> bool:
        """Let it end by itself, as a worker does when its channel is closed. Returns whether it did within these
        seconds."""
        self.channel.close()
        self.release()
        if self._status is None:
            self._status = self._wait(seconds)
        return self._status is not None

    def cause_of_death(self) -> str:
        """Return one line on how the process ended. Call it after the channel closed."""
        if self._status is None:
            self._status = self._wait(2.0)
        if self._status is None:
            return "closed its channel without ending"
        if self._status < 0:
            return f"was killed by {_signal_name(-self._status)}"
        return f"exited with status {self._status} before it answered"

    def last_words(self, most: int = MAX_LOG) -> str:
        """Return the end of what it wrote to its standard streams."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - most))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""


def shorten(log: Path, most: int = KEPT_LOG) -> None:
    """Keep the last bytes of a finished log: it stays until the referee ends. Never raises."""
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
    """Run `python -m module FD` with its end of a new channel and nothing else of ours. `wrapper` is put before it."""
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
    """Like `start`, but replace this process: pid, environment, sandbox and this end of a channel stay.

    For libraries that must be loaded first, such as a sanitizer's runtime.
    """
    os.set_inheritable(descriptor, True)
    command = _command(module, descriptor, wrapper)
    os.execvp(command[0], command)  # noqa: S606 - a shell would only be in the way


def _command(module: str, descriptor: int, wrapper: Sequence[str]) -> list[str]:
    # -P: the current directory never shadows a package
    return [*wrapper, sys.executable, "-P", "-m", module, str(descriptor)]


def fork(task: Callable[[int], None], *, work: Path, keep: Sequence[int] = (), max_frame: int = MAX_FRAME) -> Process:
    """Like `start`, but in a fork of this process, which must have one thread. The fork need not import again.

    The fork has our environment, and of our open descriptors only those in `keep`.
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
    """Clean up a new fork of one of our processes: it keeps only what it has imported, and the descriptors in
    `keep`."""
    os.setsid()
    write_to(log)
    close_all_but((0, 1, 2, *keep))
    confine(parent)
    os.chdir(work)


def kill_tree(pid: int) -> None:
    """End one of our processes and everything that it started."""
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
    """Set limits of a process before it runs anything foreign; it ends with its parent."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (WORKER_FILE_LIMIT, WORKER_FILE_LIMIT))
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent was killed before PDEATHSIG was set
            os._exit(1)
        # what it leaves behind stays in its tree, where it can be held and killed
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def import_path() -> str:
    """Return our own import path, so that a child finds the same kforge and the same torch.

    Workers may read all of it. The folder in which kforge was started is on the path of `python -m kforge`, and a home
    folder on that of a script in it: no candidate should see either.
    """
    private = private_folders()
    ours = Path(__file__).parents[3]
    entries = (entry for entry in sys.path if entry and Path(entry).is_dir())
    return os.pathsep.join(entry for entry in entries if Path(entry) == ours or shareable(entry, private))


def common_environment(*, tool_path: str, threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of every worker: where tools are, and nothing secret.

    A referee starts with it too, since its fork server is a copy of it, and gets the user's environment later.
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
    """Return the variables for the folders where one worker may write; builds are kept for the next worker of the same
    program."""
    return {
        "HOME": str(work),
        "TMPDIR": str(work),
        "TORCHINDUCTOR_CACHE_DIR": str(builds / "inductor"),
    }
