"""Starts workers, and chooses how: as a fork of a fork server, or as a new interpreter.

- Usually a worker is a fork of one fork server.
- Under a tool that is a command (a profiler), the fork server executes a new interpreter under that command.
- Under a tool that is not a command (a compiler's sanitizer), a second fork server runs with the tool's environment.
- A worker that needs torch's compiler is a fork of another fork server that has it imported.
- On systems where torch does not survive a fork (macOS), every worker is a new interpreter.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kforge.errors import EvaluationError, InputError
from kforge.evaluation.processes import launch
from kforge.evaluation.processes.fork_requests import WORKER, ForkServerClient, Opened
from kforge.evaluation.processes.worker_fork_server import Open, serve
from kforge.evaluation.sandbox import Border, Layer, WorkerFolders, seatbelt
from kforge.evaluation.sandbox.privileges import volunteer_for_the_oom_killer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kforge.evaluation.sandbox import Warden
    from kforge.platforms import Overseer

FORK_SERVER = "kforge.evaluation.processes.worker_fork_server"
"""The module that a fork server of workers runs."""


@dataclass(frozen=True)
class Prepared:
    """Selects a worker of a fork server that has these environment variables and has imported torch's compiler."""

    environment: Mapping[str, str]
    compiler: str
    """FRONT or WHOLE: how much of the compiler is imported."""
    wrapper: tuple[str, ...] = ()
    """Always empty; only a tool (`Overseer`) has a command."""


class Workers:
    """Starts worker processes for the referee.

    Methods raise EvaluationError if a worker cannot be started, and InputError if no sandbox works here.
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
        """Start the fork server.

        `environment` comes from `launch.common_environment`. With a `warden`, the fork server is a fork of this
        process, which must have torch imported, have one thread and hold no secret yet. Without a warden it is a new
        interpreter. Workers may read the folder `platform`, but nothing in `private`.
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
        """More fork servers, for tools and for `Prepared` workers. The key is their environment and what they
        import."""

    @property
    def sandbox(self) -> str:
        """Description of the sandbox layer in use: what it protects and what it does not."""
        return self._layer().description

    @property
    def unsafe(self) -> bool:
        """Whether workers run without a sandbox."""
        return self._layer().layer == Layer.name

    def take(self, builds: Path, under: Overseer | Prepared | None = None) -> launch.Process:
        """Return a new worker that may keep its builds in this folder.

        `under` is a sanitizer or profiler for it to run under, or selects a fork server with torch's compiler.
        """
        worker = self._started_worker(builds, under)
        with suppress(OSError):  # set again from outside the worker's user namespace, where it may be permanent
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
            with suppress(EvaluationError):  # it may have been killed when memory ran out, because it uses much
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
            warden.close_descriptors()
        else:
            environment = {**self._environment, **launch.private_environment(folder, folder)}
            environment |= {} if under is None else under.environment
            fork_server = launch.start(FORK_SERVER, work=folder, environment=environment)
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
        """Return the sandbox layer in use. Raises InputError if none works."""
        if self._chosen is None:
            self._chosen = self._fork_server.opened if self._fork_server else Opened(*seatbelt.choose(self._ladder))
        if not self._chosen.layer:
            raise InputError(self._chosen.description)
        return self._chosen


def _compiler_of(under: Overseer | Prepared | None) -> str:
    return under.compiler if isinstance(under, Prepared) else ""
