"""The messages between a fork server and its client, and both sides of that exchange.

The client asks for new processes; the server forks and reaps them. The fork servers of workers
(`worker_fork_server.py`) and of referees (`referee/fork_server.py`) both use this module.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from kforge.errors import EvaluationError
from kforge.evaluation.constants import FOREVER, MAX_FRAME, START_DEADLINE
from kforge.evaluation.processes import launch
from kforge.evaluation.sandbox import Freezer, WorkerFolders
from kforge.evaluation.transport.channel import Channel, SideDied, SideTimedOut
from kforge.evaluation.transport.wire import Tree, WireMessage

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer", bound=WireMessage)

WORKER = "kforge.evaluation.processes.fresh_worker"
"""The module that a worker runs if it is a new interpreter and not a fork."""


@dataclass(frozen=True)
class Opened(WireMessage, kind=37):
    """The fork server's first message: which sandbox layer it uses."""

    layer: str
    """Name of the layer; empty if no layer works."""
    description: str
    """What the layer protects and what it does not; the reason if no layer works."""


@dataclass(frozen=True)
class Spawn(WireMessage, kind=32):
    """A request to start a worker that may write to the folders `work` and `builds`. The worker's end of a channel is
    sent with it."""

    work: str
    builds: str
    afresh: Tree
    """None for a fork. For a new interpreter: a pair of the command to put before it, and its environment variables."""


@dataclass(frozen=True)
class Spawned(WireMessage, kind=33):
    """The answer to Spawn. A file descriptor for `Freezer` is sent with it if the sandbox layer has one."""

    pid: int
    failure: str
    """Why no worker was started; empty on success."""


@dataclass(frozen=True)
class Reap(WireMessage, kind=34):
    """A request for the exit status of a worker. With `kill`, the worker is killed first."""

    pid: int
    kill: bool


@dataclass(frozen=True)
class Reaped(WireMessage, kind=35):
    """The answer to Reap: whether the worker has ended, and with which status."""

    ended: bool
    status: int
    """Exit status as in Python's subprocess: negative for a signal."""


class ForkServerClient:
    """The client's side of a fork server. Methods raise EvaluationError if the server is gone or cannot fork."""

    def __init__(self, fork_server: launch.Process, max_frame: int = MAX_FRAME) -> None:
        """`max_frame` is the largest message, in bytes, that the new processes may send."""
        self._process = fork_server
        self._max_frame = max_frame
        self._lock = threading.Lock()

    @cached_property
    def opened(self) -> Opened:
        """The sandbox layer that the server chose. The first access waits for the server's message."""
        return self._receive(Opened)[0]

    def spawn(self, place: WorkerFolders, afresh: Tree = None) -> launch.Process:
        """Start a worker with these folders: a fork of the server, or with `afresh` a new interpreter (see
        `Spawn.afresh`). Raises EvaluationError if no worker can be started."""
        if not self.opened.layer:
            raise EvaluationError(f"a worker cannot be started: {self.opened.description}")
        ours, theirs = socket.socketpair()
        try:
            order = Spawn(str(place.work), str(place.builds), afresh)
            spawned, freezers = self._ask(order, Spawned, descriptors=(theirs.fileno(),))
            if spawned.failure:
                raise EvaluationError(f"a worker cannot be started: {spawned.failure}")
        except EvaluationError:
            ours.close()
            raise
        finally:
            theirs.close()
        channel = Channel(ours, max_frame=self._max_frame, death=os.pidfd_open(spawned.pid))
        wait, end = partial(self._reap, spawned.pid, kill=False), partial(self._reap, spawned.pid, kill=True)
        freezer = Freezer(*freezers) if freezers else None
        return launch.Process(spawned.pid, channel, place.log, wait=wait, end=end, freezer=freezer)

    def close(self) -> None:
        self._process.kill()

    def _reap(self, pid: int, seconds: float, *, kill: bool) -> int | None:
        end = time.monotonic() + seconds
        while True:
            reaped, _ = self._ask(Reap(pid, kill), Reaped)
            if reaped.ended:
                return reaped.status
            if time.monotonic() > end:
                return None
            time.sleep(0.002)

    def _ask(
        self, order: WireMessage, answer: type[Answer], descriptors: tuple[int, ...] = ()
    ) -> tuple[Answer, list[int]]:
        with self._lock:  # no other thread may send a request before the answer to this one
            try:
                self._process.channel.send(order, descriptors=descriptors)
            except (SideDied, SideTimedOut) as error:
                raise self._lost(error) from None
            return self._receive(answer)

    def _receive(self, answer: type[Answer]) -> tuple[Answer, list[int]]:
        """Return the next message, which must have the type `answer`, and the file descriptors that came with it."""
        try:
            got, descriptors = self._process.channel.receive_with_descriptor(START_DEADLINE)
        except (SideDied, SideTimedOut) as error:
            raise self._lost(error) from None
        assert isinstance(got, answer)
        return got, descriptors

    def _lost(self, error: Exception) -> EvaluationError:
        """Return an error with the last line of the server's log."""
        last = self._process.last_words().strip().rpartition("\n")[2]
        return EvaluationError(f"workers cannot be started ({type(error).__name__}): {last}")


class Parent(Protocol):
    """Protocol of a sandbox layer, as `ForkServer` uses it: starts workers and ends them."""

    def spawn(self, place: WorkerFolders, task: Callable[[], None], *, keep: tuple[int, ...]) -> int: ...

    def freezer(self, pid: int) -> int | None: ...

    def kill(self, pid: int) -> None: ...

    def clear(self, pid: int) -> None: ...

    def close(self) -> None: ...


class ForkServer:
    """The server's side: answers the requests of one client. `serve(FD)` is what a forked worker runs."""

    def __init__(self, channel: Channel, layer: Parent, serve: Callable[[int], None]) -> None:
        self._channel = channel
        self._layer = layer
        self._serve = serve

    def work(self) -> None:
        """Answer requests until the client is gone, then end all workers."""
        while True:
            try:
                order, descriptors = self._channel.receive_with_descriptor(FOREVER)
            except SideDied:
                self._layer.close()
                return
            match order:
                case Spawn():
                    spawned = self._spawn(order, descriptors[0])
                    freezer = None if spawned.failure else self._layer.freezer(spawned.pid)
                    self._channel.send(spawned, descriptors=() if freezer is None else (freezer,))
                    os.close(descriptors[0])
                case Reap():
                    self._channel.send(self._reap(order))

    def _spawn(self, order: Spawn, descriptor: int) -> Spawned:
        place = WorkerFolders(Path(order.work), Path(order.builds))

        def task() -> None:
            os.environ.update(launch.private_environment(place.work, place.builds))
            tempfile.tempdir = None  # tempfile has cached the fork server's own folder
            if order.afresh is not None:
                wrapper, environment = order.afresh
                os.environ.update(environment)
                launch.execute(WORKER, descriptor, wrapper)
            self._serve(descriptor)

        try:
            return Spawned(self._layer.spawn(place, task, keep=(descriptor,)), "")
        except OSError as error:
            return Spawned(0, str(error))

    def _reap(self, order: Reap) -> Reaped:
        if order.kill:
            self._layer.kill(order.pid)
        pid, status = os.waitpid(order.pid, os.WNOHANG)
        if not pid:
            return Reaped(False, 0)
        self._layer.clear(pid)
        return Reaped(True, os.waitstatus_to_exitcode(status))
