"""Shares one machine among the workers of a suite: one timing at a time, and nothing beside it.

The evaluator counts every other process as a disturbance, so a build beside a timing would change verdicts. Model calls
need no turn: they wait for a network.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stopped(BaseException):
    """Raised in a worker that waits for a turn when the suite is stopped. It is no error of the worker's problem."""


class Schedule:
    """The turns of all workers, in the order of their requests, so that every request gets its turn."""

    def __init__(self, together: int) -> None:
        """`together`: most builds at once."""
        self._most = together
        self._changed = threading.Condition()
        self._queue = deque[object]()
        self._alone = False
        """Whether a worker has the machine to itself now."""
        self._together = 0
        """Number of workers that build beside each other now."""
        self._is_stopped = False
        self.in_process = threading.Lock()
        """Held during work inside this process."""

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    @property
    def waiting(self) -> tuple[object, ...]:
        """The tickets of requests that wait for a turn, in order."""
        with self._changed:
            return tuple(self._queue)

    def stop(self) -> None:
        """Give no more turns. Workers that wait for a turn get Stopped."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    @contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """Wait for a turn, and hold it inside the `with` block. Raises Stopped after `stop`."""
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            self._changed.wait_for(lambda: self._is_stopped or (self._queue[0] is ticket and self._is_free(alone)))
            self._queue.remove(ticket)
            if self._is_stopped:
                raise Stopped
            self._count(alone, 1)
        try:
            yield
        finally:
            with self._changed:
                self._count(alone, -1)

    def _is_free(self, alone: bool) -> bool:
        return not self._alone and self._together < (1 if alone else self._most)

    def _count(self, alone: bool, change: int) -> None:
        if alone:
            self._alone = change > 0
        else:
            self._together += change
        self._changed.notify_all()


class WorkerTurns:
    """The turns of one worker, made in the worker's thread. They count how long the present problem has waited."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._owner = threading.get_ident()
        self._waited = 0.0

    @property
    def waited(self) -> float:
        return self._waited

    def begin_problem(self) -> None:
        """Count from zero, for the next problem."""
        self._waited = 0.0

    @contextmanager
    def alone(self) -> Iterator[None]:
        asked = time.monotonic()
        with self._schedule.turn(alone=True):
            self._count_since(asked)
            yield

    @contextmanager
    def together(self) -> Iterator[None]:
        asked = time.monotonic()
        with self._schedule.turn(alone=False):
            self._count_since(asked)
            yield

    @contextmanager
    def in_process(self) -> Iterator[None]:
        asked = time.monotonic()
        # the lock comes first: a worker that waits for it must not keep a timing waiting as well
        with self._schedule.in_process, self._schedule.turn(alone=False):
            self._count_since(asked)
            yield

    def _count_since(self, asked: float) -> None:
        # a question in a thread of its own waits while the worker goes on, so the problem loses no time
        if threading.get_ident() == self._owner:
            self._waited += time.monotonic() - asked
