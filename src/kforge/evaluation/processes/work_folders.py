"""Makes and removes the work folders of evaluations in the temporary folder. Each is locked while its process lives.

A process id is not enough to tell whether the owner is alive, because two containers may share a temporary folder. So
the process that makes a folder holds a lock on it, which the kernel releases when the process dies. If a folder's lock
is free, its process was killed, and the next evaluation removes the folder.

Some file systems have no locks, or none for folders (NFS). There a folder keeps its first, hidden name, and other
processes never remove it. If its process is killed, it stays.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from kforge.errors import InputError
from kforge.evaluation.sandbox import leftovers
from kforge.evaluation.sandbox.border import is_text

PREFIX = "kforge-work-"
_UNFINISHED = f".{PREFIX}"
"""Name prefix of a folder that is not locked yet. Folders with this prefix are never cleaned up by other processes."""

_held: dict[Path, int] = {}
"""For each folder of this process, the open file descriptor that holds its lock."""


def make() -> Path:
    """Remove folders of dead processes, and return a new folder. Raises InputError if no folder can be written."""
    try:
        root = Path(tempfile.gettempdir())
        must_be_text(root, "TMPDIR")
        for left in root.glob(f"{PREFIX}*"):
            leftovers.remove_if_abandoned(left)
        made = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=root))
        descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return made
        folder = made.rename(root / made.name.removeprefix("."))
    except OSError as error:
        raise InputError(f"no folder can be made in the temporary folder: {error.strerror or error}") from error
    _held[folder] = descriptor
    return folder


def must_be_text(folder: Path, variable: str) -> None:
    """Raise InputError if a folder's name is not UTF-8, because it could not be sent to a referee. `variable` is the
    environment variable that chooses the folder."""
    if not is_text(str(folder)):
        raise InputError(
            f"{str(folder)!a} has a name that is not UTF-8, and evaluations cannot use it; "
            f"let {variable} name another folder"
        )


def remove(folder: Path) -> None:
    """Remove a folder that `make` returned, and release its lock. Never raises."""
    leftovers.remove(folder)
    descriptor = _held.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)
