"""The workers of a suite, a thread each. No worker waits for another, except for a turn on the machine (`turns.py`)."""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from kforge.platforms import host
from kforge.suite.turns import Schedule, Stopped, WorkerTurns
from kforge.suite.worker import SuiteWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kforge.problems import Task
    from kforge.suite.results import ProblemResult
    from kforge.suite.worker import SuiteOrders

PATIENCE = 10.0
"""Seconds in which a stopped worker must end. A killed referee ends in milliseconds; a model call is not waited for."""
REMINDER_SECONDS = 0.1
"""Seconds after which a stopped worker is stopped again: it may have been starting a referee."""


class Crew:
    """Threads that take one problem after the other."""

    def __init__(self, orders: SuiteOrders, watch: Callable[[Task, str], None]) -> None:
        self._orders = orders
        self._watch = watch
        self._schedule = Schedule(together=host.threads())
        self._left = SimpleQueue["Task"]()
        self._done = SimpleQueue["ProblemResult | BaseException"]()
        self._workers: list[SuiteWorker] = []
        self._threads: list[threading.Thread] = []

    def carry_out(self, tasks: Sequence[Task]) -> Iterator[ProblemResult]:
        """Yield the result of each task when it ends. Raises the first error that would stop every problem."""
        for task in tasks:
            self._left.put(task)
        for number in range(min(self._orders.workers, len(tasks))):
            # a daemon thread, so that an interrupted command does not wait for a provider
            thread = threading.Thread(target=self._work, name=f"kforge suite worker {number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in tasks:
            found = self._done.get()
            if isinstance(found, BaseException):
                raise found
            yield found

    def close(self) -> None:
        """Stop all workers. What they have finished is on disk, and what they have not can be resumed."""
        self._schedule.stop()
        end = time.monotonic() + PATIENCE
        for thread in self._threads:
            while thread.is_alive() and time.monotonic() < end:
                for worker in self._workers:
                    worker.stop()
                thread.join(REMINDER_SECONDS)

    def _work(self) -> None:
        worker = SuiteWorker(self._orders, WorkerTurns(self._schedule))
        self._workers.append(worker)
        try:
            while not self._schedule.is_stopped:
                self._done.put(worker.carry_out(self._left.get_nowait(), self._watch))
        except (Stopped, Empty):
            pass
        except BaseException as error:  # raised where the results are read
            self._done.put(error)
        finally:
            worker.close()
