"""Where referees come from in a process that needs several: copies of one that has torch imported, in 0.2 s, not in 2.

The first referee of a process is a new interpreter, and for a command line that is all; with the second comes a stem,
and it and all further ones are its copies. Where the user keeps a stem for all commands, it is that one's, and so is
the first. A stem is a nursery without a border: referees are our own code. It knows no problem and no secret, and the
user's environment is told to each referee alone; so is where tools are found.
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
from kforge.evaluation import launch, meeting, work_folders
from kforge.evaluation.channel import Channel
from kforge.evaluation.constants import MAX_TRUSTED_FRAME
from kforge.evaluation.forking import forked, reap_children
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

    def referee(
        self, work: Path, environment: Mapping[str, str], folder: Callable[[], Path], cache: Path | None = None
    ) -> launch.Process:
        """A referee that works there; `folder` makes one for a stem, and in `cache` one may be met that is shared."""
        # elsewhere torch does not survive a fork; and a copy of this process has no part in its stems, or its lock
        if sys.platform == "linux" and self._pid == os.getpid():
            with self._lock, suppress(EvaluationError):  # without a copy it takes longer
                variables = tuple(sorted(begun_with(environment).items()))
                if (home := self._home(variables, folder, cache)) is not None:
                    return self._copy(variables, home, work)
        return launch.start(REFEREE, work=work, environment=environment, max_frame=MAX_TRUSTED_FRAME)

    def close(self) -> None:
        if self._pid == os.getpid():
            for home in self._homes.values():
                home.close()
            for folder in self._folders:
                work_folders.remove(folder)

    def _home(self, variables: Variables, folder: Callable[[], Path], cache: Path | None) -> Stem | None:
        """None for the first referee of an environment, unless somebody shares a stem."""
        if variables not in self._homes:
            process = meeting.knock(cache, dict(variables)) if cache else None
            if process is None and variables not in self._asked:
                self._asked.add(variables)
                return None
            if not self._homes:
                atexit.register(self.close)
            self._homes[variables] = Stem(process or self._start(variables, folder), MAX_TRUSTED_FRAME)
        return self._homes[variables]

    def _start(self, variables: Variables, folder: Callable[[], Path]) -> launch.Process:
        self._folders.append(folder())
        return launch.start(STEM, work=self._folders[-1] / "stem", environment=dict(variables))

    def _copy(self, variables: Variables, home: Stem, work: Path) -> launch.Process:
        try:
            return home.spawn(Place(work, work))
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

    def freezer(self, pid: int) -> None:
        """Nobody holds a referee still."""

    def kill(self, pid: int) -> None:
        launch.kill_tree(pid)

    def clear(self, pid: int) -> None:
        self._pids.discard(pid)

    def close(self) -> None:
        for pid in self._pids:
            self.kill(pid)
            os.waitpid(pid, 0)


def begun_with(environment: Mapping[str, str]) -> dict[str, str]:
    """What of a referee's environment its stem must have."""
    return {name: value for name, value in environment.items() if name != "PATH"}


def import_all() -> None:
    """What a copy finds imported: all that a referee needs, and the workers of its nursery."""
    gc.disable()
    from kforge.evaluation import referee, worker  # noqa: F401

    gc.freeze()
    gc.enable()


def work_for(channel: Channel) -> None:
    """Make referees for who is at the other end, until that is gone, and they with it."""
    from kforge.evaluation import referee

    channel.send(Opened("none", "a referee is trusted"))
    Nursery(channel, Trusted(), referee.serve).work()


def serve(descriptor: int) -> None:
    reap_children()
    channel = Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME)
    # the thread that began us may end long before its process does, which we see by the channel
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 0)
    import_all()
    work_for(channel)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
