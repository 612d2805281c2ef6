"""The socket of `kforge warm`: lies in the cache folder, and accepts only the same user.

The socket's folder is named by a hash of everything that a fork inherits: environment, interpreter, the code of kforge
and torch, processors, priority and limits. A command that differs in any of these finds no socket. Workers cannot
connect, because a sandbox shows no sockets of the host.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import socket
import stat
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.errors import InputError
from kforge.evaluation.constants import MAX_TRUSTED_FRAME, START_DEADLINE
from kforge.evaluation.processes.launch import LOG, Process
from kforge.evaluation.sandbox import leftovers
from kforge.evaluation.transport.channel import Channel
from kforge.platforms import inherited_limits

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[0-9a-f]{16}")
"""Matches the name of a socket's folder (`place`)."""
_CREDENTIALS = struct.Struct("3i")
"""Format of a peer's credentials as the kernel reports them: process, user, group."""


def place(cache: Path, environment: Mapping[str, str]) -> Path:
    """Return the folder of the socket for this environment and the present code. A server need not be listening
    there."""
    shared = [
        sorted(environment.items()),
        sys.executable,
        sys.version,
        _code(),
        inherited_limits.of_process(),
        inherited_limits.of_groups(),
    ]
    return cache / "warm" / hashlib.sha256(json.dumps(shared).encode()).hexdigest()[:16]


def knock(cache: Path, environment: Mapping[str, str]) -> Process | None:
    """Connect to the server of `kforge warm`. Returns the connection as a Process, or None if there is no server.

    Closing the connection ends the referees that were forked for it, but not the server.
    """
    if sys.platform != "linux" or not (cache / "warm").is_dir():
        return None
    folder = place(cache, environment)
    connection = socket.socket(socket.AF_UNIX)
    with suppress(OSError):  # no server listens there
        connection.connect(str(_socket_of(folder)))
        host, user = peer(connection)
        if user == os.geteuid():
            channel = Channel(connection, max_frame=MAX_TRUSTED_FRAME)
            return Process(host, channel, folder / LOG, wait=lambda _: 0, end=lambda _: 0)
    connection.close()
    return None


def open_at(folder: Path) -> socket.socket:
    """Return a listening socket in this folder. Raises InputError if a server already listens there, or if none can."""
    address = _socket_of(folder)
    if _answers(address):
        raise InputError(f"`kforge warm` is already running (socket {address})")
    listener = socket.socket(socket.AF_UNIX)
    try:
        folder.chmod(0o700)  # keeps other users out
        address.unlink(missing_ok=True)
        listener.bind(str(address))
        listener.listen()
    except OSError as error:
        listener.close()
        raise InputError(f"no socket can be opened at {address}: {error.strerror or error}") from error
    return listener


def sweep(cache: Path) -> None:
    """Remove the folders of servers that were killed.

    Only folders of this user with a name from `place` are removed, and no link is followed.
    """
    if (cache / "warm").is_symlink():
        return
    for folder in (cache / "warm").glob("*"):
        with suppress(OSError):
            about = folder.lstat()
            ours = _NAME.fullmatch(folder.name) and stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
            if ours and time.time() - about.st_mtime > START_DEADLINE:  # a younger one may be about to listen
                clear(folder)


def clear(folder: Path) -> None:
    """Remove the folder of a server, unless a server still listens there."""
    if not _answers(_socket_of(folder)):
        leftovers.remove(folder)


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return process id and user id of the peer. Raises OSError if the kernel does not tell them."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return process, user


def _socket_of(folder: Path) -> Path:
    return folder / "warm.socket"


def _answers(address: Path) -> bool:
    """Return whether a server listens at this address."""
    with socket.socket(socket.AF_UNIX) as asked, suppress(OSError):
        asked.connect(str(address))
        return True
    return False


def _code() -> list[str | int]:
    """Return a value that changes when a module of kforge changes, or when a package is installed beside torch.

    It includes the ctime of files, which no user can set back.
    """
    ours = Path(__file__).parents[2]
    found = ((str(path.relative_to(ours)), path.stat()) for path in ours.rglob("*.py"))
    files = sorted((name, about.st_size, about.st_mtime_ns, about.st_ctime_ns) for name, about in found)
    torch = importlib.util.find_spec("torch")
    beside = Path(torch.origin).parents[1].stat().st_mtime_ns if torch and torch.origin else 0
    return [hashlib.sha256(json.dumps(files).encode()).hexdigest(), beside]
