"""The verdict on a program. Only `Correct` has a `Timing`: a failed candidate cannot have a speedup."""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from kforge.records.numbers import Count, Positive, within
from kforge.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Sequence


class Interval(Record):
    """A median with its 95 % interval."""

    median: Positive
    low: Positive
    high: Positive

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.median <= self.high:
            raise ValueError(f"interval out of order: {self.low} <= {self.median} <= {self.high}")
        return self


def times(value: Interval) -> str:
    """Format a speedup and its interval: `1.49x (1.36 to 1.57)`."""
    return f"{value.median:.2f}x ({value.low:.2f} to {value.high:.2f})"


EAGER = "eager"
"""The baseline that every evaluation measures again."""
WIN_BOUND = 1.02
"""A win is claimed only when the interval's lower bound is above this; a loss, when its upper bound is below the
inverse."""

Finding = Literal["faster", "slower", "cannot tell"]


class Comparison(Record):
    """The candidate against one baseline, in one paired measurement."""

    baseline: Literal["eager", "compile"]
    identity: str
    """What exactly ran: versions, mode, threads."""
    seconds: Positive
    """Median seconds per call of the baseline."""
    speedup: Interval
    doubt: str | None = None
    """Why the interval is not to be believed, where something disturbed the measurement."""

    @property
    def finding(self) -> Finding:
        if self.doubt is not None:
            return "cannot tell"
        if self.speedup.low > WIN_BOUND:
            return "faster"
        return "slower" if self.speedup.high < 1 / WIN_BOUND else "cannot tell"


def pooled(found: Sequence[Comparison]) -> Comparison:
    """Combine measurements of the same two programs by fresh processes: the mean of the logarithms.

    Against eager all measurements are independent, also in their process-to-process variation, so the interval shrinks
    with the square root of their number. Another baseline was measured once for all of them, so its part of the
    interval does not shrink. A disturbed measurement counts only where all were disturbed.
    """
    sure = [each for each in found if each.doubt is None] or list(found)
    speedups = [each.speedup for each in sure]
    middle = fmean(math.log(each.median) for each in speedups)
    below = [math.log(each.median / each.low) for each in speedups]
    above = [math.log(each.high / each.median) for each in speedups]
    together = _independent if sure[0].baseline == EAGER else fmean
    return Comparison(
        baseline=sure[0].baseline,
        identity=sure[0].identity,
        seconds=median(each.seconds for each in sure),
        speedup=Interval(
            median=within(math.exp(middle)),
            low=within(math.exp(middle - together(below))),
            high=within(math.exp(middle + together(above))),
        ),
        doubt=sure[0].doubt,
    )


def _independent(widths: Sequence[float]) -> float:
    return math.hypot(*widths) / len(widths)


class Timing(Record):
    """Seconds per call and the speedups, all from verified calls."""

    seconds: Interval
    comparisons: tuple[Comparison, ...] = Field(min_length=1)
    """The comparisons, eager first, and each baseline once."""
    pairs: Count

    @model_validator(mode="after")
    def _eager_first(self) -> Self:
        names = [each.baseline for each in self.comparisons]
        if names[0] != EAGER or len(set(names)) < len(names):
            raise ValueError("comparisons must be with eager first, and with each baseline once")
        return self

    def against(self, baseline: str) -> Comparison | None:
        return next((c for c in self.comparisons if c.baseline == baseline), None)

    @property
    def speedup(self) -> Interval:
        """Speedup over the first baseline, which is always eager."""
        return self.comparisons[0].speedup


class GenerationFailure(Record):
    """No program could be read out of the answer."""

    state: Literal["generation_failure"] = "generation_failure"
    reason: str


class CompilationFailure(Record):
    state: Literal["compilation_failure"] = "compilation_failure"
    reason: str
    log: str = ""
    """The compiler's messages, cut to the lines that matter."""


class RuntimeFailure(Record):
    state: Literal["runtime_error"] = "runtime_error"
    fault: Literal["timed_out", "died", "raised"]
    reason: str
    log: str = ""
    """The traceback inside the candidate, when it raised."""


class Mismatch(Record):
    state: Literal["mismatch"] = "mismatch"
    kind: Literal["structure", "shape", "dtype", "numerical"]
    reason: str
    case: str = ""
    max_error: float | None = None
    """Largest error relative to the output's scale; present for numerical mismatches only."""
    tolerance: float | None = None


class Rejected(Record):
    """The program cheats, or attacks the evaluator."""

    state: Literal["rejected"] = "rejected"
    rule: str
    reason: str


class Correct(Record):
    state: Literal["correct"] = "correct"
    max_error: float
    tolerance: float
    cases: Count
    timing: Timing | None = None
    """Absent where the program ran in an emulator, whose speed means nothing."""
    untimed: str | None = None
    """Why there is no timing."""

    @model_validator(mode="after")
    def _timed_or_why_not(self) -> Self:
        if (self.timing is None) == (self.untimed is None):
            raise ValueError("a correct program has a timing, or a reason why it was not timed")
        return self

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparisons with the baselines, eager first; empty where the program was not timed."""
        return self.timing.comparisons if self.timing is not None else ()


Verdict = Annotated[
    GenerationFailure | CompilationFailure | RuntimeFailure | Mismatch | Rejected | Correct,
    Field(discriminator="state"),
]


VERDICT: TypeAdapter[Verdict] = TypeAdapter(Verdict)
