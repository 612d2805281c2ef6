"""Stages of an evaluation: their durations, for the receipt, and the progress text that a user sees.

A report is `STAGE` or `STAGE: DETAIL`. A detail that changes is reported again with the same stage before the colon, as
often as there is news: a terminal display replaces the last one, other displays print only a few of them.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORDS = {
    "evaluator": "starting the evaluator",
    "problem": "preparing the problem",
    "start": "starting a worker",
    "build": "building the program",
    "verify": "checking correctness",
    "time": "timing against eager",
    "physics": "comparing the time with the memory bandwidth",
    "trace": "sampling whose code runs",
    "compare": "comparing with the baselines",
    "compile baseline": "compiling the torch.compile baseline",
    "time compiled": "timing torch.compile against eager",
    "head to head": "timing against the best program so far",
    "profile": "profiling",
    "sanitize": "running the sanitizers",
    "calibrate": "measuring the peaks of the device",
}
"""The words for users, by the name of the stage in receipts, or a name for stages that no receipt has."""

CASES_TO_ESTIMATE = 2
"""Number of finished cases after which the remaining time is estimated."""
SHORT = 3.0
"""Seconds: a shorter remaining time is not reported."""


class Stages:
    """Measures the stages of one evaluation by their names in receipts, and reports each in words."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._say = say

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._say(WORDS[name])
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - start, 4)


class CaseCounter:
    """Reports which of how many cases begins and, once two are done, about how long the rest takes."""

    def __init__(self, stage: str, total: int, say: Callable[[str], None]) -> None:
        """`stage` is its name in receipts."""
        self._stage = WORDS[stage]
        self._total = total
        self._say = say
        self._done = 0
        self._start = time.monotonic()

    def begin_next(self) -> None:
        left = ""
        if self._done >= CASES_TO_ESTIMATE:
            seconds = (time.monotonic() - self._start) / self._done * (self._total - self._done)
            left = f", about {seconds:.0f} s left" if seconds >= SHORT else ""
        self._done += 1
        self._say(f"{self._stage}: case {self._done} of {self._total}{left}")
