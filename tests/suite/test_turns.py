"""Workers of a suite take turns on the machine: nothing runs beside a timing, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from kforge.suite.turns import Schedule, Stopped, WorkerTurns

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 30.0
"""Seconds after which a thread that should have ended is hung."""


class Room:
    """Counts who works at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = Counter[str]()
        self.seen = list[Counter[str]]()

    def work(self, kind: str, seconds: float = 0.001) -> None:
        with self._lock:
            self._now[kind] += 1
            self.seen.append(self._now.copy())
        time.sleep(seconds)
        with self._lock:
            self._now[kind] -= 1


def started(*tasks: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=task, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    return threads


def ended(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "it waits for ever"


def test_nothing_runs_beside_a_timing_and_builds_run_beside_builds() -> None:
    schedule, room = Schedule(together=2), Room()

    def worker() -> None:
        turns = WorkerTurns(schedule)
        for _ in range(20):
            with turns.together():
                room.work("build")
            with turns.in_process():
                room.work("trace")
            with turns.alone():
                room.work("time")

    ended(started(*[worker] * 4))
    assert sum(now["time"] for now in room.seen) == 80, "every timing is seen once, since nothing begins beside it"
    assert all(now.total() == 1 for now in room.seen if now["time"])
    assert max(now["trace"] for now in room.seen) == 1, "torch is traced by one thread at a time"
    assert max(now["build"] + now["trace"] for now in room.seen) == 2, "as many as may, and no more"


def test_a_timing_is_not_kept_waiting_by_builds_that_come_later() -> None:
    schedule = Schedule(together=8)
    order = list[str]()
    is_building, may_end = threading.Event(), threading.Event()

    def first_build() -> None:
        with schedule.turn(alone=False):
            is_building.set()
            may_end.wait(PATIENCE)

    def timing() -> None:
        with schedule.turn(alone=True):
            order.append("timing")

    def late_build() -> None:
        with schedule.turn(alone=False):
            order.append("build")

    threads = started(first_build)
    assert is_building.wait(PATIENCE)
    threads += started(timing)
    while len(schedule.waiting) < 1:
        time.sleep(0.001)
    threads += started(late_build)
    while len(schedule.waiting) < 2:
        time.sleep(0.001)
    may_end.set()
    ended(threads)
    assert order == ["timing", "build"]


def test_time_spent_waiting_is_counted_for_the_worker_that_waits() -> None:
    schedule = Schedule(together=1)
    has_turn, may_end = threading.Event(), threading.Event()

    def other() -> None:
        with schedule.turn(alone=True):
            has_turn.set()
            may_end.wait(PATIENCE)

    threads = started(other)
    assert has_turn.wait(PATIENCE)
    turns = WorkerTurns(schedule)
    threads += started(lambda: (time.sleep(0.05), may_end.set())[0])
    with turns.alone():
        waited = turns.waited
        time.sleep(0.05)
    assert turns.waited == waited > 0.0, "only waiting counts, not the work"
    turns.begin_problem()
    assert turns.waited == 0.0
    ended(threads)


def test_who_waits_when_a_suite_stops_gets_no_turn() -> None:
    schedule = Schedule(together=1)
    stopped = list[str]()

    def waiting() -> None:
        with suppress(Stopped), schedule.turn(alone=True):
            stopped.append("it worked")

    with schedule.turn(alone=True):
        threads = started(waiting, waiting)
        while len(schedule.waiting) < 2:
            time.sleep(0.001)
        schedule.stop()
        ended(threads)
    assert stopped == []
    with pytest.raises(Stopped), schedule.turn(alone=False):
        pass
