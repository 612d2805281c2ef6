"""Work folders of evaluations, under the temporary folder: each is locked as long as its evaluation lives.

A process id says nothing in another PID namespace, and two containers may share a temporary folder. So the process that
makes a folder holds a lock on it, which the kernel releases when the process dies, however it dies. A folder whose lock
is free was left by a process that was killed, and the next evaluation removes it.

Some file systems have no locks, or none for folders (NFS). There a folder keeps the name of one that is not locked yet,
so that nobody removes it while it is in use. One that a killed process leaves there stays: that is the lesser harm.
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
"""Prefix of a folder that is not locked yet: folders with it are not cleaned up."""

_held: dict[Path, int] = {}
"""The descriptors that hold the locks of this process's folders."""


def make() -> Path:
    """Make a folder, after removing those that dead processes left. Raises InputError when there is no room for one."""
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
        raise InputError(f"no temporary folder can be written: {error.strerror or error}") from error
    _held[folder] = descriptor
    return folder


def must_be_text(folder: Path, variable: str) -> None:
    """Raise InputError for a folder whose name cannot be passed to a referee: another one would be used, and stay
    behind."""
    if not is_text(str(folder)):
        raise InputError(
            f"{str(folder)!a} has a name that is not UTF-8, and evaluations cannot use it; "
            f"let {variable} name another folder"
        )


def remove(folder: Path) -> None:
    """Remove a folder that `make` made, and release its lock. Never raises."""
    leftovers.remove(folder)
    descriptor = _held.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)
