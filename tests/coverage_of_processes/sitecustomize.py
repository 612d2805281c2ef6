"""Measures which lines of kforge run, in every process that has this folder on its import path: see `make coverage`.

coverage.py's own way to measure child processes is a variable in their environment. Referees start with an environment
of nothing but what they need, and are killed, not ended: so a timer saves what was seen so far.

Not counted: workers behind a border, which may write nothing outside their folder; what a process does in its last
quarter of a second before it is killed; processes that a test starts with an import path of its own.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import coverage

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / ".coverage"
"""A folder: one file for each process."""
INTERVAL = 0.25
"""Seconds of processor time: a process that waits has nothing new to save."""

measured = coverage.Coverage(
    data_file=str(DATA / "data"),
    data_suffix=True,
    include=[str(ROOT / "src" / "kforge" / "*")],
    config_file=str(ROOT / "pyproject.toml"),
)
_exit, _execv, _execve = os._exit, os.execv, os.execve


def save(*_: object) -> None:
    # a worker's border is no fault, and must not become one of the program that it runs
    with suppress(Exception):
        if os.access(DATA, os.W_OK):
            measured.save()
        else:
            stop_timer()


def stop_timer() -> None:
    """A process that lives on without our handler would be killed by the timer."""
    signal.setitimer(signal.ITIMER_PROF, 0)


def at_exit() -> None:
    stop_timer()
    save()


def exit_now(status: int) -> NoReturn:
    """What a fork ends with, which runs nothing at its exit."""
    at_exit()
    _exit(status)


def execv(*arguments: Any) -> NoReturn:
    at_exit()
    _execv(*arguments)


def execve(*arguments: Any) -> NoReturn:
    at_exit()
    _execve(*arguments)


def begin() -> None:
    """Also in every fork: its parent's timer is not its own."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGPROF, save)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)


measured.start()
atexit.register(at_exit)
os._exit, os.execv, os.execve = exit_now, execv, execve
os.register_at_fork(after_in_child=begin)
begin()
