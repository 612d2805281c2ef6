"""One writer at a time: an advisory lock that the kernel releases when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kforge.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROBE_SECONDS = 0.2
"""How long a writer outwaits `is_held`, which touches the lock for microseconds."""


@contextmanager
def exclusive(path: Path, *, what: str, wait: float = PROBE_SECONDS) -> Iterator[None]:
    """Hold the lock, with our process id in its file. Raises RunError when another holds it longer than `wait`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunError(f"cannot lock {what}: {path}: {error.strerror or error}") from error
    try:
        _acquire(descriptor, what, time.monotonic() + wait)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether some process holds the lock now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise RunError(f"cannot read the lock {path}: {error.strerror or error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


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
