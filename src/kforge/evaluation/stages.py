"""Measures how long each stage of an evaluation takes, for the receipt, and tells the user which stage is running.

A progress message is `STAGE` or `STAGE: DETAIL`. When only the detail changes, the message is sent again with the same
STAGE. A terminal replaces the message before; displays without a terminal print only some of these messages.
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
"""Text that users see for each stage. The keys are the names of stages in receipts, or private names for stages that no
receipt contains."""

CASES_TO_ESTIMATE = 2
"""Finished cases that are needed before the remaining time is estimated."""
SHORT = 3.0
"""Seconds. A remaining time below this is not shown."""


class Stages:
    """Measures the seconds of each stage of one evaluation (`seconds`), and reports each stage as it begins."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._say = say

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Report that stage `name` begins, and add the seconds of the `with` block to it."""
        self._say(WORDS[name])
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - start, 4)


class CaseCounter:
    """Reports the number of the correctness case that begins, and the estimated time until the last one ends."""

    def __init__(self, stage: str, total: int, say: Callable[[str], None]) -> None:
        """`stage` is a key of `WORDS`, `total` the number of cases, and `say` receives the messages."""
        self._stage = WORDS[stage]
        self._total = total
        self._say = say
        self._done = 0
        self._start = time.monotonic()

    def begin_next(self) -> None:
        """Report that the next case begins."""
        left = ""
        if self._done >= CASES_TO_ESTIMATE:
            seconds = (time.monotonic() - self._start) / self._done * (self._total - self._done)
            left = f", about {seconds:.0f} s left" if seconds >= SHORT else ""
        self._done += 1
        self._say(f"{self._stage}: case {self._done} of {self._total}{left}")
