"""Workers by the dozen: a process that has torch imported and forks one whenever it is asked to.

`import torch` takes 1.7 s of one core and a fork 6 ms, so every candidate gets a fresh process for next to nothing. The
nursery itself never runs foreign code, holds no secret, and starts no thread pool that a fork would break.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kforge.errors import EvaluationError
from kforge.evaluation import launch
from kforge.evaluation.channel import Channel, SideDied, SideTimedOut
from kforge.evaluation.constants import MAX_FRAME, MAX_TRUSTED_FRAME, START_DEADLINE
from kforge.evaluation.wire import Message

if TYPE_CHECKING:
    from collections.abc import Mapping

Answer = TypeVar("Answer", bound=Message)

FOREVER = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Spawn(Message, kind=32):
    """Fork a worker in this folder; its end of the channel travels with this frame."""

    work: str


@dataclass(frozen=True)
class Spawned(Message, kind=33):
    pid: int


@dataclass(frozen=True)
class Reap(Message, kind=34):
    pid: int


@dataclass(frozen=True)
class Reaped(Message, kind=35):
    ended: bool
    status: int
    """As Python's subprocess has it: negative for a signal."""


class Workers:
    """The referee's side: fresh worker processes. Raises EvaluationError when none can be had."""

    def __init__(self, *, work: Path, tool_path: str, threads: int, extra: Mapping[str, str]) -> None:
        self._work = work
        self._environment = launch.common_environment(tool_path=tool_path, threads=threads, extra=extra)
        self._started = 0
        # macOS's frameworks do not survive a fork: there every worker is a new interpreter
        self._nursery = self._start_nursery() if sys.platform == "linux" else None

    def take(self) -> launch.Process:
        self._started += 1
        work = self._work / f"worker-{self._started:04d}"
        work.mkdir(parents=True)
        if self._nursery is None:
            environment = {**self._environment, **launch.private_environment(work)}
            return launch.start("kforge.evaluation.worker", work=work, environment=environment)
        ours, theirs = socket.socketpair()
        with theirs:
            spawned = self._ask(Spawn(str(work)), Spawned, descriptors=(theirs.fileno(),))
        pid = spawned.pid
        return launch.Process(pid, Channel(ours, max_frame=MAX_FRAME), work / launch.LOG, lambda s: self._reap(pid, s))

    def close(self) -> None:
        if self._nursery is not None:
            self._nursery.kill()

    def _start_nursery(self) -> launch.Process:
        folder = self._work / "nursery"
        environment = {**self._environment, **launch.private_environment(folder)}
        return launch.start("kforge.evaluation.nursery", work=folder, environment=environment)

    def _reap(self, pid: int, seconds: float) -> int | None:
        end = time.monotonic() + seconds
        while True:
            reaped = self._ask(Reap(pid), Reaped)
            if reaped.ended:
                return reaped.status
            if time.monotonic() > end:
                return None
            time.sleep(0.002)

    def _ask(self, order: Message, answer: type[Answer], descriptors: tuple[int, ...] = ()) -> Answer:
        assert self._nursery is not None
        try:
            self._nursery.channel.send(order, descriptors=descriptors)
            got = self._nursery.channel.receive(START_DEADLINE)
        except (SideDied, SideTimedOut) as error:
            last = self._nursery.last_words().strip().rpartition("\n")[2]
            raise EvaluationError(f"workers cannot be started ({type(error).__name__}): {last}") from None
        assert isinstance(got, answer)
        return got


def main() -> None:
    channel_socket = socket.socket(fileno=int(sys.argv[1]))
    channel = Channel(channel_socket, max_frame=MAX_TRUSTED_FRAME)
    from kforge.evaluation import worker

    gc.freeze()  # what is here now is never collected, so its pages stay shared
    while True:
        try:
            order, descriptors = channel.receive_with_descriptor(FOREVER)
        except SideDied:
            return
        if isinstance(order, Reap):
            pid, status = os.waitpid(order.pid, os.WNOHANG)
            channel.send(Reaped(pid != 0, os.waitstatus_to_exitcode(status) if pid else 0))
        elif isinstance(order, Spawn):
            pid = os.fork()
            if pid == 0:
                try:
                    channel_socket.close()
                    _settle(Path(order.work))
                    worker.serve(descriptors[0])
                finally:
                    os._exit(1)
            os.close(descriptors[0])
            channel.send(Spawned(pid))


def _settle(work: Path) -> None:
    """What a freshly forked worker does before anything foreign: a session, a folder, a log, limits of its own."""
    os.setsid()
    os.chdir(work)
    log = os.open(work / launch.LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    os.environ.update(launch.private_environment(work))
    tempfile.tempdir = None  # cached from the nursery's own folder
    launch.confine()


if __name__ == "__main__":
    main()
