"""Where referees come from in a process that needs several: copies of one that has torch imported, in 0.2 s, not in 2.

The first referee of a process is a new interpreter, and for a command line that is all; with the second comes a stem,
and it and all further ones are its copies. A stem is a nursery without a border: referees are our own code. It knows
no problem and no secret, and the user's environment is told to each referee alone; so is where tools are found.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from kforge.errors import EvaluationError
from kforge.evaluation import launch
from kforge.evaluation.channel import Channel
from kforge.evaluation.constants import MAX_TRUSTED_FRAME
from kforge.evaluation.forking import forked
from kforge.evaluation.nursery import Home, Nursery, Opened
from kforge.evaluation.sandbox import Place, syscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

REFEREE = "kforge.evaluation.referee"
STEM = "kforge.evaluation.stem"

Variables = tuple[tuple[str, str], ...]


class Stems:
    """The stems of this process, one for each environment that referees begin with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._asked: set[Variables] = set()
        self._homes: dict[Variables, Stem] = {}
        self._folders: list[Path] = []

    def referee(self, work: Path, environment: Mapping[str, str], folder: Callable[[], Path]) -> launch.Process:
        """A referee that works there; `folder` makes one for a stem."""
        variables = tuple(sorted((name, value) for name, value in environment.items() if name != "PATH"))
        # elsewhere torch does not survive a fork; and a copy of this process has no part in its stems, or its lock
        if sys.platform == "linux" and self._pid == os.getpid():
            with self._lock, suppress(EvaluationError):  # without a copy it takes longer
                if variables in self._asked:
                    return self._copy(variables, work, folder)
                self._asked.add(variables)
        return launch.start(REFEREE, work=work, environment=environment, max_frame=MAX_TRUSTED_FRAME)

    def close(self) -> None:
        if self._pid == os.getpid():
            for home in self._homes.values():
                home.close()
            for folder in self._folders:
                shutil.rmtree(folder, ignore_errors=True)

    def _copy(self, variables: Variables, work: Path, folder: Callable[[], Path]) -> launch.Process:
        if variables not in self._homes:
            if not self._folders:
                atexit.register(self.close)
            self._folders.append(folder())
            process = launch.start(STEM, work=self._folders[-1] / "stem", environment=dict(variables))
            self._homes[variables] = Stem(process, MAX_TRUSTED_FRAME)
        try:
            return self._homes[variables].spawn(Place(work, work))
        except EvaluationError:
            self._homes.pop(variables).close()
            raise


class Stem(Home):
    """Copies go with their stem, and that must not keep anybody from letting go of them."""

    def _reap(self, pid: int, seconds: float, *, kill: bool) -> int | None:
        try:
            return super()._reap(pid, seconds, kill=kill)
        except (EvaluationError, OSError):  # it died, and was let go of
            return -signal.SIGKILL


class Trusted:
    """In place of a layer: how copies of a stem are born and ended."""

    def __init__(self) -> None:
        self._pids: set[int] = set()

    def spawn(self, place: Place, task: Callable[[], None], *, keep: tuple[int, ...]) -> int:
        place.work.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()

        def begin() -> None:
            launch.settle(parent, place.work, place.log, keep)
            task()

        pid = forked(begin)
        self._pids.add(pid)
        return pid

    def kill(self, pid: int) -> None:
        launch.kill_tree(pid)

    def clear(self, pid: int) -> None:
        self._pids.discard(pid)

    def close(self) -> None:
        for pid in self._pids:
            self.kill(pid)
            os.waitpid(pid, 0)


def serve(descriptor: int) -> None:
    channel = Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME)
    # the thread that began us may end long before its process does, which we see by the channel
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 0)
    gc.disable()
    from kforge.evaluation import referee, worker  # noqa: F401 - for its nursery

    gc.freeze()
    gc.enable()
    channel.send(Opened("none", "a referee is trusted"))
    Nursery(channel, Trusted(), referee.serve).work()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
