"""Turns: when work may run that would disturb the timing of other problems, or be disturbed by it.

A run that has the machine to itself waits for nothing. Several runs at once, as in a suite with several workers, take
turns: what is timed runs alone, and builds run beside other builds.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Turns(Protocol):
    """The turns of one run. Each method waits for a turn, which lasts as long as the `with` block."""

    @property
    def waited(self) -> float:
        """Seconds that the run has waited for turns since it began. They count for no budget."""
        ...

    def alone(self) -> AbstractContextManager[object]:
        """Wait until no other run uses the machine. For everything that is timed or that uses a device."""
        ...

    def together(self) -> AbstractContextManager[object]:
        """Wait until no run is timing. For work of the processors, such as builds."""
        ...

    def in_process(self) -> AbstractContextManager[object]:
        """Like `together`, for work inside this process: one thread at a time, because tracing changes torch's global
        state."""
        ...


class NoTurns:
    """The turns of a run that has the machine to itself: nothing is waited for."""

    waited = 0.0

    def alone(self) -> AbstractContextManager[object]:
        return nullcontext()

    def together(self) -> AbstractContextManager[object]:
        return nullcontext()

    def in_process(self) -> AbstractContextManager[object]:
        return nullcontext()
