"""Forks this process to run a task. This process must have one thread, because a fork copies only the calling
thread."""

from __future__ import annotations

import os
import signal
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def forked(task: Callable[[], None]) -> int:
    """Run `task` in a child process, which then exits with status 1. Returns the child's pid.

    Exceptions are printed to the child's standard error.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        task()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def reap_children() -> None:
    """Make the exit statuses of children available again. A program that uses kforge may ignore SIGCHLD, and its
    children inherit that."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def write_to(log: Path) -> None:
    """Redirect standard output and standard error of this process to a file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
