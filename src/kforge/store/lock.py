"""Allows one writer at a time, by an advisory file lock. The kernel releases the lock when its holder dies for any
reason."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kforge import durable
from kforge.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROBE_SECONDS = 0.2
"""Seconds that a writer waits while `is_held` holds the lock, which takes only microseconds."""


@contextmanager
def exclusive(path: Path, *, what: str, wait: float = PROBE_SECONDS) -> Iterator[None]:
    """Hold the lock inside the `with` block, and write this process's id into the lock file.

    Raises RunError if another process holds the lock for longer than `wait` seconds.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise durable.is_link(path) from None
        raise RunError(f"cannot lock {what}: {path}: {error.strerror or error}") from error
    try:
        _must_be_ours(descriptor, path)
        _acquire(descriptor, what, time.monotonic() + wait)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether some process holds the lock now. Raises RunError if the lock file cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise durable.is_link(path) from None
        raise RunError(f"cannot read the lock {path}: {error.strerror or error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _must_be_ours(descriptor: int, path: Path) -> None:
    """Raise RunError if the file is not a lock file of kforge, because the process id would overwrite its content."""
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        raise RunError(f"{path} is not a lock file of kforge: it has hard links, or is not a regular file; remove it")


def _acquire(descriptor: int, what: str, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                # The holder writes its id just after locking, so for an instant the file may be empty.
                holder = os.pread(descriptor, 20, 0).decode(errors="replace")
                by = f"process {holder}" if holder.isdigit() else "another process"
                raise RunError(f"{what} is in use by {by}") from None
            time.sleep(0.01)
        except OSError as error:
            raise RunError(f"cannot lock {what}: {error.strerror or error}") from error
