"""Implements `kforge warm`: one fork server for all kforge commands of a user, so that they need not import torch.

Every command that connects gets its own fork of the server, which ends with the command.
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
from kforge.evaluation.constants import FOREVER, MAX_TRUSTED_FRAME, START_DEADLINE
from kforge.evaluation.processes import launch
from kforge.evaluation.referee import fork_server, warm_socket
from kforge.evaluation.sandbox.forking import forked
from kforge.evaluation.sandbox.privileges import close_all_but
from kforge.evaluation.transport.channel import Channel, SideDied, SideTimedOut
from kforge.evaluation.transport.wire import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WARM = "kforge.evaluation.referee.warm"
"""The module that the server runs."""
LISTENING, REFUSED = "listening", "refused"
"""Answers of the new server: it listens, or it refuses with a reason."""


def share(cache: Path, environment: Mapping[str, str], ready: Callable[[], None]) -> NoReturn:
    """Start the server, call `ready` when it listens, and wait until the user interrupts.

    Raises InputError if a server already runs or none can run here. Raises EvaluationError if the server fails.
    """
    if sys.platform != "linux":
        raise InputError("`kforge warm` works on Linux only: elsewhere torch does not survive a fork")
    environment = fork_server.begun_with(environment)
    folder = warm_socket.place(cache, environment)
    warm_socket.sweep(cache)
    if (other := warm_socket.knock(cache, environment)) is not None:
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
        if not host.await_exit(5.0):
            host.kill()
        warm_socket.clear(folder)


def serve(descriptor: int) -> None:
    """Run the server until the command that started it is gone. `descriptor` is its end of the channel."""
    channel = Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME)
    told = channel.receive(START_DEADLINE)
    assert isinstance(told, Document)
    folder = Path(told.body)
    fork_server.import_all()
    try:
        listener = warm_socket.open_at(folder)
    except InputError as error:
        channel.send(Document(REFUSED, str(error)))
        return
    channel.send(Document(LISTENING, ""))
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(descriptor, select.POLLIN)
    while descriptor not in {ready for ready, _ in waiting.poll()}:
        with (
            suppress(OSError),
            listener.accept()[0] as connection,
        ):  # a command that is not served starts its own referee
            if warm_socket.peer(connection)[1] == os.geteuid():
                forked(lambda: _attend(connection.detach()))
        _reap()


def _attend(descriptor: int) -> None:
    """Run in a fork of the server: fork referees for one command, and end with it."""
    os.setsid()
    close_all_but((0, 1, 2, descriptor))
    fork_server.work_for(Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME))


def _reap() -> None:
    """Reap all forks that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    serve(int(sys.argv[1]))
