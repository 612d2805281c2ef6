"""Watches references in double precision, which cannot be interrupted: progress reports, and a deadline.

Some have no fast kernel (a transposed convolution in double precision takes a hundred times as long as in single). The
referee's main thread is inside the call, so another thread reports how long it has taken. When the deadline passes,
that thread ends the evaluation with one line: the orchestrator kills a referee that reports an error.
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


class ReferenceWatch:
    """Reports what a referee does, also while its main thread is inside a long call."""

    def __init__(
        self,
        tell: Callable[[str], None],
        give_up: Callable[[str], None],
        *,
        news: float = REFERENCE_NEWS,
        deadline: float = REFERENCE_DEADLINE,
        total: float = REFERENCE_TOTAL,
    ) -> None:
        """`tell` gets a progress report every `news` seconds, `give_up` gets the reason when the deadline has passed.

        `deadline` is for one reference, `total` for all of one evaluation.
        """
        self._tell = tell
        self._give_up = give_up
        self._news, self._deadline, self._total = news, deadline, total
        self._lock = threading.Lock()
        self._said = ""
        self._spent = 0.0

    def say(self, text: str) -> None:
        """Report a stage or its progress."""
        self._said = text
        with self._lock:
            self._tell(text)

    def begin(self) -> None:
        """Start a new evaluation: reset the total."""
        self._spent = 0.0

    def install(self) -> None:
        """Watch over every reference of this process from now on."""
        _installed[:] = [self]

    @contextmanager
    def over(self, name: str) -> Iterator[None]:
        """Watch one call of the reference of that problem."""
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
    """Surround a call of the reference of that problem in double precision."""
    return _installed[0].over(name) if _installed else nullcontext()
