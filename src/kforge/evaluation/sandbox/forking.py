"""Forks this process to run a task. The process must have one thread: a fork copies no other."""

from __future__ import annotations

import os
import signal
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def forked(task: Callable[[], None]) -> int:
    """Run a task in a child, which then ends. Returns the child's pid. Exceptions go to its standard error."""
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
    """Let this process get its children's exit status: the program that uses kforge may ignore SIGCHLD, which is
    inherited."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def write_to(log: Path) -> None:
    """Let the standard streams of this process go to a file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
