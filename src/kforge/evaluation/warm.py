"""A stem for all commands of a user: while it runs, their referees are copies of it, and none of them imports torch.

Each command that comes gets a copy of its own to ask, which ends with the command and not with us.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kforge.errors import EvaluationError, InputError
from kforge.evaluation import launch, meeting, stem
from kforge.evaluation.channel import Channel, SideDied, SideTimedOut
from kforge.evaluation.constants import FOREVER, MAX_TRUSTED_FRAME, START_DEADLINE
from kforge.evaluation.forking import forked
from kforge.evaluation.sandbox.privileges import close_all_but
from kforge.evaluation.wire import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WARM = "kforge.evaluation.warm"
LISTENING, REFUSED = "listening", "refused"


def share(cache: Path, environment: Mapping[str, str], ready: Callable[[], None]) -> NoReturn:
    """Keep a stem that any process of this user finds, until interrupted; `ready` is called as soon as it can be.

    Raises InputError where there is one, or none can be, and EvaluationError when it fails.
    """
    if sys.platform != "linux":
        raise InputError("`kforge warm` works on Linux only: elsewhere torch does not survive a fork")
    environment = stem.begun_with(environment)
    folder = meeting.place(cache, environment)
    meeting.sweep(cache)
    if (other := meeting.knock(cache, environment)) is not None:
        other.kill()
        raise InputError(f"`kforge warm` is already running for this environment (folder {folder}); end that one first")
    try:
        host = launch.start(WARM, work=folder, environment=environment, max_frame=MAX_TRUSTED_FRAME)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}") from error
    try:
        host.channel.send(Document("folder", str(folder)))
        answer = host.channel.receive(START_DEADLINE)
        assert isinstance(answer, Document)
        if answer.topic == REFUSED:
            raise InputError(answer.body)
        ready()
        host.channel.receive(FOREVER)
        raise EvaluationError("the process of `kforge warm` has ended; start it again")
    except (SideDied, SideTimedOut):
        last = host.last_words().strip().rpartition("\n")[2]
        raise EvaluationError(f"the process of `kforge warm` {host.cause_of_death()}: {last}") from None
    finally:
        if not host.finish(5.0):
            host.kill()
        meeting.clear(folder)


def serve(descriptor: int) -> None:
    """Until who began us is gone."""
    channel = Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME)
    told = channel.receive(START_DEADLINE)
    assert isinstance(told, Document)
    folder = Path(told.body)
    stem.import_all()
    try:
        listener = meeting.open_at(folder)
    except InputError as error:
        channel.send(Document(REFUSED, str(error)))
        return
    channel.send(Document(LISTENING, ""))
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(descriptor, select.POLLIN)
    while descriptor not in {ready for ready, _ in waiting.poll()}:
        with suppress(OSError), listener.accept()[0] as connection:  # who is not served begins by itself
            if meeting.peer(connection)[1] == os.geteuid():
                forked(lambda: _attend(connection.detach()))
        _reap()


def _attend(descriptor: int) -> None:
    """In a copy: be the stem of one command. It lives as long as that does, and what it makes no longer than it."""
    os.setsid()
    close_all_but((0, 1, 2, descriptor))
    stem.work_for(Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME))


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    serve(int(sys.argv[1]))
