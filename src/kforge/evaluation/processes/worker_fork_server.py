"""Forks workers from a process that has torch imported, each in a sandbox, on request.

`import torch` takes 1.7 s of one core and a fork 6 ms, so every candidate gets a fresh process at almost no cost. A
platform may preload here what every worker of it needs. The fork server itself never runs foreign code, holds no
secret, and starts no thread pool that a fork would break. A tool that is not a separate command, such as a compiler's
sanitizer, has a fork server that runs under it; and workers that need more of torch than others have one that has it
imported.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from kforge.errors import EvaluationError, InputError
from kforge.evaluation.processes import launch
from kforge.evaluation.protocol import FOREVER, MAX_FRAME, MAX_TRUSTED_FRAME, START_DEADLINE
from kforge.evaluation.sandbox import (
    Border,
    Freezer,
    Layer,
    NoBorder,
    Warden,
    WorkerFolders,
    choose,
    seatbelt,
    syscalls,
)
from kforge.evaluation.sandbox.privileges import volunteer_for_the_oom_killer
from kforge.evaluation.transport.channel import Channel, SideDied, SideTimedOut
from kforge.evaluation.transport.wire import Message, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kforge.platforms import Overseer

Answer = TypeVar("Answer", bound=Message)

WORKER = "kforge.evaluation.processes.fresh_worker"
FRONT, WHOLE = "front", "whole"
"""How much of torch's compiler a fork server has imported."""


@dataclass(frozen=True)
class Open(Message, kind=36):
    """The first request: which sandbox layers may be used, which folders are inside, and whose workers they are."""

    ladder: Tree
    readable: Tree
    devices: Tree
    platform: str
    """The platform's folder."""
    compiler: str
    """What its workers have imported of torch's compiler: nothing (empty), its front or all of it."""


@dataclass(frozen=True)
class Opened(Message, kind=37):
    layer: str
    """The chosen layer; empty when none works."""
    description: str


@dataclass(frozen=True)
class Spawn(Message, kind=32):
    """Fork a worker that may write these two folders; its end of the channel travels with this frame."""

    work: str
    builds: str
    afresh: Tree
    """None for a fork. For a new interpreter: the command of the tool that wraps it, and its environment variables."""


@dataclass(frozen=True)
class Spawned(Message, kind=33):
    """The answer to Spawn. A descriptor for `Freezer` comes with it, if the layer has one."""

    pid: int
    failure: str
    """Why there is no worker; empty when there is one."""


@dataclass(frozen=True)
class Reap(Message, kind=34):
    pid: int
    kill: bool


@dataclass(frozen=True)
class Reaped(Message, kind=35):
    ended: bool
    status: int
    """Exit status as in Python's subprocess: negative for a signal."""


@dataclass(frozen=True)
class Prepared:
    """Selects workers of a fork server that has these variables, and has imported torch's compiler; it is not a
    tool."""

    environment: Mapping[str, str]
    compiler: str
    """FRONT or WHOLE."""
    wrapper: tuple[str, ...] = ()


class Workers:
    """The referee's side: starts fresh worker processes.

    Raises EvaluationError when none can be started, and InputError where no sandbox works.
    """

    def __init__(
        self,
        *,
        work: Path,
        environment: Mapping[str, str],
        platform: Path,
        device_nodes: Sequence[str],
        ladder: Sequence[str],
        private: Sequence[Path] = (),
        warden: Warden | None = None,
    ) -> None:
        """`environment`: of `launch.common_environment`. `warden`: fork the server from this process, which has torch
        imported, one thread, and no secret yet.

        Without a warden the server is a new interpreter. Workers may read the platform's folder and what it preloads.
        """
        self._work = work
        self._platform = platform
        self._environment = dict(environment)
        self._border = Border.around(launch.import_path(), environment["PATH"], (platform,), device_nodes, private)
        self._ladder = tuple(ladder)
        self._started = 0
        self._chosen: Opened | None = None
        # macOS's frameworks do not survive a fork: there every worker is a new interpreter
        self._fork_server = self._opened_fork_server(warden=warden) if sys.platform == "linux" else None
        self._fork_servers_under: dict[tuple[object, ...], ForkServerClient] = {}
        """Fork servers that run under a tool or are prepared, by the tool's variables or the preparation."""

    @property
    def sandbox(self) -> str:
        """The sandbox layer in use: what it covers, and what it does not."""
        return self._layer().description

    @property
    def unsafe(self) -> bool:
        return self._layer().layer == Layer.name

    def take(self, builds: Path, under: Overseer | Prepared | None = None) -> launch.Process:
        """Return a fresh worker that may keep builds in this folder, optionally under a tool or prepared."""
        worker = self._started_worker(builds, under)
        with suppress(OSError):  # it did so itself; set from outside its user namespace, it may be permanent
            volunteer_for_the_oom_killer(worker.pid)
        return worker

    def _started_worker(self, builds: Path, under: Overseer | Prepared | None) -> launch.Process:
        self._started += 1
        place = WorkerFolders(self._work / f"worker-{self._started:04d}", builds)
        self._layer()
        if self._fork_server is None:
            return self._start_alone(place, under)
        if under is None:
            return self._fork_server.spawn(place)
        if under.wrapper:
            return self._fork_server.spawn(place, [list(under.wrapper), dict(under.environment)])
        what = *sorted(under.environment.items()), _compiler_of(under)
        if (fork_server := self._fork_servers_under.get(what)) is not None:
            with suppress(EvaluationError):  # memory may have run out, of which it has much
                return fork_server.spawn(place)
            fork_server.close()
        self._fork_servers_under[what] = fork_server = self._opened_fork_server(under=under)
        return fork_server.spawn(place)

    def close(self) -> None:
        for fork_server in (self._fork_server, *self._fork_servers_under.values()):
            if fork_server is not None:
                fork_server.close()

    def _opened_fork_server(
        self, *, warden: Warden | None = None, under: Overseer | Prepared | None = None
    ) -> ForkServerClient:
        folder = self._work / ("fork-server" if under is None else f"fork-server-{self._started:04d}")
        if warden is not None:
            begin = partial(serve, warden=warden, environment=self._environment)
            fork_server = launch.fork(begin, work=folder, keep=warden.descriptors)
            warden.let_go()
        else:
            environment = {**self._environment, **launch.private_environment(folder, folder)}
            environment |= {} if under is None else under.environment
            fork_server = launch.start(
                "kforge.evaluation.processes.worker_fork_server", work=folder, environment=environment
            )
        ladder = self._ladder if under is None else (self._layer().layer,)
        border, compiler = self._border, _compiler_of(under)
        opening = Open(list(ladder), list(border.readable), list(border.devices), str(self._platform), compiler)
        fork_server.channel.send(opening)
        return ForkServerClient(fork_server)

    def _start_alone(self, place: WorkerFolders, under: Overseer | Prepared | None) -> launch.Process:
        place.work.mkdir(parents=True)
        place.builds.mkdir(parents=True, exist_ok=True)
        wrapper = () if self.unsafe else seatbelt.wrapper(self._border, place)
        environment = {**self._environment, **launch.private_environment(place.work, place.builds)}
        if under is not None:
            wrapper, environment = (*wrapper, *under.wrapper), {**environment, **under.environment}
        return launch.start(WORKER, work=place.work, environment=environment, wrapper=wrapper)

    def _layer(self) -> Opened:
        if self._chosen is None:
            self._chosen = self._fork_server.opened if self._fork_server else Opened(*seatbelt.choose(self._ladder))
        if not self._chosen.layer:
            raise InputError(self._chosen.description)
        return self._chosen


def _compiler_of(under: Overseer | Prepared | None) -> str:
    return under.compiler if isinstance(under, Prepared) else ""


class ForkServerClient:
    """The referee's end of a fork server. Raises EvaluationError when the server is gone or cannot fork."""

    def __init__(self, fork_server: launch.Process, max_frame: int = MAX_FRAME) -> None:
        """`max_frame`: largest frame that the processes which it makes may send."""
        self._process = fork_server
        self._max_frame = max_frame
        self._lock = threading.Lock()

    @cached_property
    def opened(self) -> Opened:
        """The sandbox layer that the server chose."""
        return self._receive(Opened)[0]

    def spawn(self, place: WorkerFolders, afresh: Tree = None) -> launch.Process:
        """Start a worker: a fork of the server, or a new interpreter by a wrapper's command and variables."""
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

    def _ask(self, order: Message, answer: type[Answer], descriptors: tuple[int, ...] = ()) -> tuple[Answer, list[int]]:
        with self._lock:  # a request and its answer belong together, whichever thread asks
            try:
                self._process.channel.send(order, descriptors=descriptors)
            except (SideDied, SideTimedOut) as error:
                raise self._lost(error) from None
            return self._receive(answer)

    def _receive(self, answer: type[Answer]) -> tuple[Answer, list[int]]:
        """Return an answer, and the descriptors that came with it."""
        try:
            got, descriptors = self._process.channel.receive_with_descriptor(START_DEADLINE)
        except (SideDied, SideTimedOut) as error:
            raise self._lost(error) from None
        assert isinstance(got, answer)
        return got, descriptors

    def _lost(self, error: Exception) -> EvaluationError:
        last = self._process.last_words().strip().rpartition("\n")[2]
        return EvaluationError(f"workers cannot be started ({type(error).__name__}): {last}")


class Parent(Protocol):
    """What forks workers and ends them: a sandbox layer."""

    def spawn(self, place: WorkerFolders, task: Callable[[], None], *, keep: tuple[int, ...]) -> int: ...

    def freezer(self, pid: int) -> int | None: ...

    def kill(self, pid: int) -> None: ...

    def clear(self, pid: int) -> None: ...

    def close(self) -> None: ...


class ForkServer:
    """The fork server's side: takes requests and forks workers."""

    def __init__(self, channel: Channel, layer: Parent, serve: Callable[[int], None]) -> None:
        self._channel = channel
        self._layer = layer
        self._serve = serve

    def work(self) -> None:
        """Serve until the referee is gone."""
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
            tempfile.tempdir = None  # cached from the fork server's own folder
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


def serve(descriptor: int, warden: Warden | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Run the fork server in this process, with the environment of its workers."""
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    channel = Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME)
    opening = channel.receive(FOREVER)
    assert isinstance(opening, Open)
    try:
        layer = choose(opening.ladder, Border(tuple(opening.readable), tuple(opening.devices)), Path.cwd(), warden)
    except NoBorder as error:
        channel.send(Opened("", str(error)))
        return
    # nothing may survive the referee: this process outlives it for a moment, and ends its workers
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 0)
    channel.send(Opened(layer.name, layer.describe()))
    gc.disable()  # imported objects stay, and searching them for garbage takes a tenth of the time
    from kforge.evaluation.worker import main as worker

    _preload(Path(opening.platform), opening.compiler)
    gc.freeze()  # present objects are never collected, so their pages stay shared
    gc.enable()
    ForkServer(channel, layer, worker.serve).work()


def _preload(platform: Path, compiler: str) -> None:
    """Preload while the referee reads its problem. A request for a worker meanwhile waits, and its worker need not
    import.

    This is only about speed: failures go to the log, and a worker repeats the work.
    """
    from kforge import platforms

    try:
        platforms.preload(platform)
        if compiler in (FRONT, WHOLE):
            import torch._dynamo
        if compiler == WHOLE:
            import torch._inductor.compile_fx  # noqa: F401
    except Exception:
        traceback.print_exc()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
