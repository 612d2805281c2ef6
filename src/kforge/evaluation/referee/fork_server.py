"""Fork servers of referees: processes with torch imported that fork a referee in 0.2 s instead of 2 s.

The first referee of a process is a new interpreter, because most commands need only one. The second one starts a fork
server, and all later ones are its forks. While `kforge warm` runs, all referees are forks of its server. Referees are
kforge's own code, so they need no sandbox. The server holds no problem, no secret and no user environment: each referee
receives its environment after the fork.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from kforge.errors import EvaluationError
from kforge.evaluation.constants import MAX_TRUSTED_FRAME
from kforge.evaluation.processes import launch, work_folders
from kforge.evaluation.processes.fork_requests import ForkServer, ForkServerClient, Opened
from kforge.evaluation.referee import warm_socket
from kforge.evaluation.sandbox import WorkerFolders, syscalls
from kforge.evaluation.sandbox.forking import forked, reap_children
from kforge.evaluation.transport.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

REFEREE = "kforge.evaluation.referee.main"
"""The module that a referee runs."""
FORK_SERVER = "kforge.evaluation.referee.fork_server"
"""The module that a fork server of referees runs."""

Variables = tuple[tuple[str, str], ...]
"""Environment variables as sorted pairs of name and value."""


class RefereeForkServers:
    """The fork servers of this process, one for each environment with which referees start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._asked: set[Variables] = set()
        self._fork_servers: dict[Variables, RefereeForkServer] = {}
        self._folders: list[Path] = []

    def referee(
        self, work: Path, environment: Mapping[str, str], folder: Callable[[], Path], cache: Path | None = None
    ) -> launch.Process:
        """Start a referee in the folder `work`.

        `environment` has the variables that it starts with. `folder` makes a folder for a new fork server. `cache` is
        the folder in which to look for the socket of `kforge warm`.
        """
        # torch survives a fork on Linux only; a process forked from this one must not use its fork servers and lock
        if sys.platform == "linux" and self._pid == os.getpid():
            with self._lock, suppress(EvaluationError):  # the new interpreter below is slower, but works
                variables = tuple(sorted(begun_with(environment).items()))
                if (fork_server := self._fork_server(variables, folder, cache)) is not None:
                    return self._copy(variables, fork_server, work)
        return launch.start(REFEREE, work=work, environment=environment, max_frame=MAX_TRUSTED_FRAME)

    def close(self) -> None:
        """End the fork servers, and remove their folders."""
        if self._pid == os.getpid():
            for fork_server in self._fork_servers.values():
                fork_server.close()
            for folder in self._folders:
                work_folders.remove(folder)

    def _fork_server(
        self, variables: Variables, folder: Callable[[], Path], cache: Path | None
    ) -> RefereeForkServer | None:
        """Return the fork server for an environment. Returns None for its first referee, unless `kforge warm` is
        running."""
        if variables not in self._fork_servers:
            process = warm_socket.knock(cache, dict(variables)) if cache else None
            if process is None and variables not in self._asked:
                self._asked.add(variables)
                return None
            if not self._fork_servers:
                atexit.register(self.close)
            self._fork_servers[variables] = RefereeForkServer(
                process or self._start(variables, folder), MAX_TRUSTED_FRAME
            )
        return self._fork_servers[variables]

    def _start(self, variables: Variables, folder: Callable[[], Path]) -> launch.Process:
        self._folders.append(folder())
        return launch.start(FORK_SERVER, work=self._folders[-1] / "fork-server", environment=dict(variables))

    def _copy(self, variables: Variables, fork_server: RefereeForkServer, work: Path) -> launch.Process:
        """Fork a referee. If the fork server fails, discard it and raise EvaluationError."""
        try:
            return fork_server.spawn(WorkerFolders(work, work))
        except EvaluationError:
            self._fork_servers.pop(variables).close()
            raise


class RefereeForkServer(ForkServerClient):
    """Client of a fork server of referees. If the server has died, its referees count as killed, because they die with
    it."""

    def _reap(self, pid: int, seconds: float, *, kill: bool) -> int | None:
        try:
            return super()._reap(pid, seconds, kill=kill)
        except (EvaluationError, OSError):  # the server died, and its referees with it
            return -signal.SIGKILL


class Trusted:
    """Forks and ends referees. It has the methods of a sandbox layer, but makes no sandbox."""

    def __init__(self) -> None:
        self._pids: set[int] = set()

    def spawn(self, place: WorkerFolders, task: Callable[[], None], *, keep: tuple[int, ...]) -> int:
        place.work.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()

        def begin() -> None:
            launch.settle(parent, place.work, place.log, keep)
            task()

        pid = forked(begin)
        self._pids.add(pid)
        return pid

    def freezer(self, pid: int) -> None:
        """Return None: referees are never stopped."""

    def kill(self, pid: int) -> None:
        launch.kill_tree(pid)

    def clear(self, pid: int) -> None:
        self._pids.discard(pid)

    def close(self) -> None:
        for pid in self._pids:
            self.kill(pid)
            os.waitpid(pid, 0)


def begun_with(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a referee's environment that its fork server must have, too: all except PATH."""
    return {name: value for name, value in environment.items() if name != "PATH"}


def import_all() -> None:
    """Import everything that a referee and its workers need, before any fork."""
    gc.disable()
    from kforge.evaluation.referee import main as referee
    from kforge.evaluation.worker import main as worker  # noqa: F401

    referee.import_flop_formulas()
    gc.freeze()
    gc.enable()


def work_for(channel: Channel) -> None:
    """Fork referees for one client, and kill them when it disconnects."""
    from kforge.evaluation.referee import main as referee

    channel.send(Opened("none", "a referee is trusted"))
    ForkServer(channel, Trusted(), referee.serve).work()


def serve(descriptor: int) -> None:
    """Run a fork server of referees until its client is gone. `descriptor` is its end of the channel."""
    reap_children()
    channel = Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME)
    # PDEATHSIG follows the parent thread, which may end before its process; EOF on the channel shows the process's end
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 0)
    import_all()
    work_for(channel)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
