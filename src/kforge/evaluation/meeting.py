"""Where a stem that is shared is met: a socket in the cache, of one user and for that user alone.

Its name stands for all that a copy has from its stem: the environment, the interpreter, kforge's and torch's code. Who
would begin with anything else finds nobody there. No worker can come: a border leaves no way to a socket of the host.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.errors import InputError
from kforge.evaluation.channel import Channel
from kforge.evaluation.constants import MAX_TRUSTED_FRAME, START_DEADLINE
from kforge.evaluation.launch import LOG, Process
from kforge.evaluation.sandbox import leftovers

if TYPE_CHECKING:
    from collections.abc import Mapping

_CREDENTIALS = struct.Struct("3i")
"""Of a peer, as the kernel has them: process, user, group."""


def place(cache: Path, environment: Mapping[str, str]) -> Path:
    """The folder where a stem with this environment and today's code is met, whether there is one or not."""
    shared = [sorted(environment.items()), sys.executable, sys.version, _code()]
    return cache / "warm" / hashlib.sha256(json.dumps(shared).encode()).hexdigest()[:16]


def knock(cache: Path, environment: Mapping[str, str]) -> Process | None:
    """The stem that is shared there, as if it were ours: letting go of it ends what it made for us, and not it."""
    if sys.platform != "linux" or not (cache / "warm").is_dir():
        return None
    folder = place(cache, environment)
    connection = socket.socket(socket.AF_UNIX)
    with suppress(OSError):  # nobody is there any more, or ever was
        connection.connect(str(_socket_of(folder)))
        host, user = peer(connection)
        if user == os.geteuid():
            channel = Channel(connection, max_frame=MAX_TRUSTED_FRAME)
            return Process(host, channel, folder / LOG, wait=lambda _: 0, end=lambda _: 0)
    connection.close()
    return None


def open_at(folder: Path) -> socket.socket:
    """Listen for other commands. Raises InputError with one line where another process listens, or none can."""
    address = _socket_of(folder)
    if _answers(address):
        raise InputError(f"`kforge warm` is already running (socket {address})")
    listener = socket.socket(socket.AF_UNIX)
    try:
        folder.chmod(0o700)  # which is what keeps everybody else out
        address.unlink(missing_ok=True)
        listener.bind(str(address))
        listener.listen()
    except OSError as error:
        listener.close()
        raise InputError(f"no socket can be opened at {address}: {error.strerror or error}") from error
    return listener


def sweep(cache: Path) -> None:
    """Remove what is left of those that were killed."""
    for folder in (cache / "warm").glob("*/"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > START_DEADLINE:  # else it may be about to listen
                clear(folder)


def clear(folder: Path) -> None:
    """Remove a place where nobody is."""
    if not _answers(_socket_of(folder)):
        leftovers.remove(folder)


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end. Raises OSError."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return process, user


def _socket_of(folder: Path) -> Path:
    return folder / "stem.socket"


def _answers(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asked, suppress(OSError):
        asked.connect(str(address))
        return True
    return False


def _code() -> list[str | int]:
    """Changes when any of kforge's modules does, or anything is installed beside torch.

    The time of a file's last change of any kind (ctime) is the kernel's: nobody can set it back with the other one.
    """
    ours = Path(__file__).parents[1]
    found = ((str(path.relative_to(ours)), path.stat()) for path in ours.rglob("*.py"))
    files = sorted((name, about.st_size, about.st_mtime_ns, about.st_ctime_ns) for name, about in found)
    torch = importlib.util.find_spec("torch")
    beside = Path(torch.origin).parents[1].stat().st_mtime_ns if torch and torch.origin else 0
    return [hashlib.sha256(json.dumps(files).encode()).hexdigest(), beside]
