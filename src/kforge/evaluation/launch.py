"""Starting and ending the process that runs foreign code.

Covered today: an empty environment but for what is passed, a private work folder, its own session, limits on core and
log files, death with its parent, and a kill that takes the whole session. Not covered yet: the file system, the
network and processes that leave the session. The receipt names the layer that was really used.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.evaluation.channel import Channel
from kforge.evaluation.constants import MAX_FRAME, MAX_LOG, WORKER_FILE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

LAYER = "process: own session, empty environment, no file-system or network border"
PR_SET_PDEATHSIG = 1


@dataclass
class Process:
    """A started process with its channel."""

    popen: subprocess.Popen[bytes]
    channel: Channel
    log: Path

    def kill(self) -> None:
        """End the process and its session, and reap it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.kill()
        self.popen.wait()
        self.channel.close()

    def cause_of_death(self) -> str:
        """One line on how the process ended. Call it after the channel closed."""
        try:
            status = self.popen.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            return "closed its channel without ending"
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"exited with status {status} before it answered"

    def last_words(self) -> str:
        """The end of what it wrote to its standard streams."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - MAX_LOG))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""


def start(module: str, *, work: Path, environment: Mapping[str, str], max_frame: int = MAX_FRAME) -> Process:
    """Run `python -m module FD` with its end of a new channel and nothing else of ours."""
    ours, theirs = socket.socketpair()
    log = work / "output.log"
    work.mkdir(parents=True, exist_ok=True)
    with theirs, log.open("wb") as output:
        popen = subprocess.Popen(
            # -P: the current directory never shadows a package
            [sys.executable, "-P", "-m", module, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=work,
            env=dict(environment),
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            preexec_fn=_limits,
        )
    return Process(popen, Channel(ours, max_frame=max_frame), log)


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (WORKER_FILE_LIMIT, WORKER_FILE_LIMIT))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Workers:
    """Fresh worker processes, started ahead of need: `import torch` is most of what one costs."""

    def __init__(self, *, work: Path, tool_path: str, threads: int, extra: Mapping[str, str]) -> None:
        self._work = work
        self._tool_path = tool_path
        self._threads = threads
        self._extra = extra
        self._started = 0
        self._spares: list[Process] = []

    def take(self) -> Process:
        return self._spares.pop(0) if self._spares else self._start()

    def refill(self, count: int) -> None:
        """Start processes until `count` are waiting. Not while something is timed: they load the machine."""
        while len(self._spares) < count:
            self._spares.append(self._start())

    def close(self) -> None:
        for spare in self._spares:
            spare.kill()
        self._spares.clear()

    def _start(self) -> Process:
        self._started += 1
        work = self._work / f"worker-{self._started:04d}"
        environment = worker_environment(work=work, tool_path=self._tool_path, threads=self._threads, extra=self._extra)
        return start("kforge.evaluation.worker", work=work, environment=environment)


def import_path() -> str:
    """Our own import path, so that a child finds the same kforge and the same torch."""
    return os.pathsep.join(entry for entry in sys.path if entry and Path(entry).is_dir())


def worker_environment(*, work: Path, tool_path: str, threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Everything a worker can learn from its environment: where tools are, and nothing secret."""
    return {
        "PATH": tool_path,
        "HOME": str(work),
        "TMPDIR": str(work),
        "LANG": "C.UTF-8",
        "PYTHONPATH": import_path(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(threads),
        "TORCH_EXTENSIONS_DIR": str(work / "extensions"),
        "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
        **extra,
    }
