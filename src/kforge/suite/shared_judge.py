"""A judge that shares the machine with other judges: each of its requests waits for its turn."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kforge.errors import EvaluationError, InputError, ProblemError
from kforge.evaluation import Judge

if TYPE_CHECKING:
    from kforge.loop import Turns
    from kforge.records import (
        Candidate,
        DeviceFacts,
        Evaluation,
        HeadToHead,
        Peaks,
        Problem,
        Profile,
        Sanitization,
        Workload,
    )

DESCRIBE_DEADLINE = 300.0
"""Seconds for opening a problem: more than one call of a reference may take (240 s), and less than the 660 s after
which a silent referee counts as hung."""


class SharedJudge(Judge):
    """A judge whose builds run beside other builds, and whose work on a device or against a clock runs alone.

    A referee starts inside the turn of its first request, so that it does not disturb a timing either.
    """

    def __init__(self, *arguments: Any, turns: Turns, builds_first: bool, **named: Any) -> None:
        """`builds_first`: whether a program is built before the turn in which it is evaluated, which makes that turn
        shorter. The other arguments are those of `Judge`."""
        super().__init__(*arguments, **named)
        self.turns = turns
        self._builds_first = builds_first
        self._built: tuple[str, str] | None = None
        """Digests of the problem and the candidate that were built last."""

    def evaluate(self, problem: Problem, candidate: Candidate, *, is_original: bool = False) -> Evaluation:
        if self._builds_first and self._built != (problem.digest, candidate.digest):
            with suppress(EvaluationError, InputError):  # the evaluation fails in the same way, and says so
                self.build(problem, candidate)
            self._built = problem.digest, candidate.digest
        return super().evaluate(problem, candidate, is_original=is_original)

    def build(self, problem: Problem, candidate: Candidate | None) -> None:
        with self.turns.together():
            super().build(problem, candidate)

    def device(self) -> str:
        with self.turns.together():
            return super().device()

    def freshen(self) -> None:
        with self.turns.together():
            super().freshen()

    def warm(self) -> None:
        """Start the referee, and wait until it has loaded."""
        self.device()

    def describe(self, problem: Problem) -> Workload:
        """Like `Judge.describe`. Raises ProblemError if it takes too long: all other workers wait meanwhile."""
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            self.interrupt()

        with self.turns.alone():
            timer = threading.Timer(DESCRIBE_DEADLINE, end)
            timer.start()
            try:
                return super().describe(problem)
            except EvaluationError:
                if not is_late.is_set():
                    raise
                told = f"the reference was not ready after {DESCRIBE_DEADLINE:g} s; it may never return"
                raise ProblemError(f"{problem.name}: {told}") from None
            finally:
                timer.cancel()

    def repeat(self, problem: Problem, candidate: Candidate, *, is_original: bool = False) -> Evaluation:
        with self.turns.alone():
            return super().repeat(problem, candidate, is_original=is_original)

    def head_to_head(self, problem: Problem, challenger: Candidate, rival: Candidate) -> HeadToHead:
        with self.turns.alone():
            return super().head_to_head(problem, challenger, rival)

    def sanitize(self, problem: Problem, candidate: Candidate) -> Sanitization:
        with self.turns.alone():
            return super().sanitize(problem, candidate)

    def profile(
        self, problem: Problem, candidate: Candidate, seconds: float | None = None, *, counters: bool = True
    ) -> Profile:
        with self.turns.alone():
            return super().profile(problem, candidate, seconds, counters=counters)

    def peaks(self, *, fresh: bool = False) -> Peaks:
        with self.turns.alone():
            return super().peaks(fresh=fresh)

    def facts(self) -> DeviceFacts:
        with self.turns.alone():
            return super().facts()
