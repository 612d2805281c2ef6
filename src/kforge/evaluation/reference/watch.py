"""Watches calls of the reference in double precision: reports progress, and ends the evaluation at a deadline.

Some operators have no fast fp64 kernel: a transposed convolution takes a hundred times as long as in fp32. Such a call
cannot be interrupted, and the referee's main thread is inside it. So another thread reports how long it has taken. At
the deadline that thread sends an error to the orchestrator, which then kills the referee.
"""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from kforge.evaluation.constants import REFERENCE_DEADLINE, REFERENCE_NEWS, REFERENCE_TOTAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_installed: list[ReferenceWatch] = []
"""The ReferenceWatch of this process, if it has one."""


class ReferenceWatch:
    """Sends progress messages, also while the main thread is inside a long call, and enforces the deadline."""

    def __init__(
        self,
        tell: Callable[[str], None],
        give_up: Callable[[str], None],
        *,
        news: float = REFERENCE_NEWS,
        deadline: float = REFERENCE_DEADLINE,
        total: float = REFERENCE_TOTAL,
    ) -> None:
        """`tell` receives a message every `news` seconds; `give_up` receives the reason when a deadline has passed.

        `deadline` is in seconds for one call of the reference, `total` for all calls of one evaluation.
        """
        self._tell = tell
        self._give_up = give_up
        self._news, self._deadline, self._total = news, deadline, total
        self._lock = threading.Lock()
        self._said = ""
        self._spent = 0.0

    def say(self, text: str) -> None:
        """Send a progress message."""
        self._said = text
        with self._lock:
            self._tell(text)

    def begin(self) -> None:
        """Reset the total time, at the start of an evaluation."""
        self._spent = 0.0

    def install(self) -> None:
        """Use this watch for all references of this process from now on."""
        _installed[:] = [self]

    @contextmanager
    def over(self, name: str) -> Iterator[None]:
        """Watch the `with` block, which is one call of the reference of the named problem."""
        done, start = threading.Event(), time.monotonic()
        thread = threading.Thread(target=self._watch, args=(name, done, start), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            with self._lock:  # wait until no report is being sent
                self._spent += time.monotonic() - start

    def _watch(self, name: str, done: threading.Event, start: float) -> None:
        """Run in another thread: send messages until `done`, or give up at the deadline."""
        while not done.wait(self._news):
            seconds = time.monotonic() - start
            with self._lock:
                if done.is_set():
                    return
                if seconds > self._deadline or self._spent + seconds > self._total:
                    self._give_up(self._reason(name, seconds))
                    return
                joint = "," if ":" in self._said else ":"
                self._tell(f"{self._said}{joint} the reference in double precision, {seconds:.0f} s so far")

    def _reason(self, name: str, seconds: float) -> str:
        if seconds > self._deadline:
            took = f"takes more than {self._deadline:g} s for one case"
        else:
            took = f"has taken {self._total:g} s for the cases so far"
        return f"{name}: the reference in double precision {took}; judge a smaller problem (--set NAME=VALUE)"


def watched(name: str) -> AbstractContextManager[None]:
    """Return a context manager that watches one fp64 call of the reference of the named problem."""
    return _installed[0].over(name) if _installed else nullcontext()
