"""The verdict on a candidate. Only `Correct` has a `Timing`, so a failed candidate cannot have a speedup."""

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
    """The median of a measured quantity, with its 95 % confidence interval."""

    median: Positive
    low: Positive
    high: Positive

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.median <= self.high:
            raise ValueError(f"interval out of order: {self.low} <= {self.median} <= {self.high}")
        return self


def times(value: Interval) -> str:
    """Return a speedup and its interval as text, such as `1.49x (1.36 to 1.57)`."""
    return f"{value.median:.2f}x ({value.low:.2f} to {value.high:.2f})"


EAGER = "eager"
"""Name of the baseline that every evaluation measures."""
WIN_BOUND = 1.02
"""A program is called faster if the lower bound of its speedup is above this, and slower if the upper bound is below
the inverse."""

Finding = Literal["faster", "slower", "cannot tell"]


class Comparison(Record):
    """The candidate's speed compared with one baseline."""

    baseline: Literal["eager", "compile"]
    identity: str
    """What exactly the baseline was: versions, mode, threads."""
    seconds: Positive
    """Median seconds per call of the baseline."""
    speedup: Interval
    doubt: str | None = None
    """Why the speedup claims nothing, for example because other processes disturbed the timing; None if there is no
    doubt."""

    @property
    def finding(self) -> Finding:
        """Whether the candidate is faster or slower than the baseline; `cannot tell` if the interval or a doubt leaves
        it open."""
        if self.doubt is not None:
            return "cannot tell"
        if self.speedup.low > WIN_BOUND:
            return "faster"
        return "slower" if self.speedup.high < 1 / WIN_BOUND else "cannot tell"


def pooled(found: Sequence[Comparison]) -> Comparison:
    """Return the combined result of several measurements of the same two programs: the geometric mean of the speedups.

    Measurements against eager are independent, so the interval shrinks with the square root of their number. Another
    baseline was measured only once for all of them, so the interval does not shrink. Measurements in doubt are left
    out, unless all are in doubt.
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
    """Return the half width of the interval of a mean of independent measurements, from their half widths."""
    return math.hypot(*widths) / len(widths)


class Timing(Record):
    """Seconds per call of a correct program, and its speedups."""

    seconds: Interval
    comparisons: tuple[Comparison, ...] = Field(min_length=1)
    """One comparison for each baseline, eager first."""
    pairs: Count
    """Number of timed pairs of blocks."""

    @model_validator(mode="after")
    def _eager_first(self) -> Self:
        names = [each.baseline for each in self.comparisons]
        if names[0] != EAGER or len(set(names)) < len(names):
            raise ValueError("comparisons must be with eager first, and with each baseline once")
        return self

    def against(self, baseline: str) -> Comparison | None:
        """Return the comparison with this baseline; None if there is none."""
        return next((c for c in self.comparisons if c.baseline == baseline), None)

    @property
    def speedup(self) -> Interval:
        """Speedup over eager."""
        return self.comparisons[0].speedup


class GenerationFailure(Record):
    """No program could be read out of a model's answer, or the program does not define `ModelNew`."""

    state: Literal["generation_failure"] = "generation_failure"
    reason: str


class CompilationFailure(Record):
    """The program could not be compiled."""

    state: Literal["compilation_failure"] = "compilation_failure"
    reason: str
    log: str = ""
    """The compiler's messages, cut to the lines that matter."""


class RuntimeFailure(Record):
    """The program timed out, died or raised an exception, as `fault` says."""

    state: Literal["runtime_error"] = "runtime_error"
    fault: Literal["timed_out", "died", "raised"]
    reason: str
    log: str = ""
    """The traceback inside the candidate if it raised; the end of its output if it died."""

    @property
    def crashed(self) -> bool:
        """Whether the program died by its own error. SIGKILL does not count: most often, memory ran out."""
        return self.fault == "died" and "SIGKILL" not in self.reason


class Mismatch(Record):
    """An output has the wrong structure, shape, dtype or values, or a call changes torch's settings, as `kind` says."""

    state: Literal["mismatch"] = "mismatch"
    kind: Literal["structure", "shape", "dtype", "numerical", "settings"]
    reason: str
    case: str = ""
    """Name of the case in which the output was wrong."""
    max_error: float | None = None
    """Largest error relative to the output's scale. Only for numerical mismatches."""
    tolerance: float | None = None
    """Largest error that was allowed."""


class Rejected(Record):
    """The program cheats or attacks the evaluator. `rule` names the rule that it breaks."""

    state: Literal["rejected"] = "rejected"
    rule: str
    reason: str


class Correct(Record):
    """The program is correct in all cases."""

    state: Literal["correct"] = "correct"
    max_error: float
    """The error that came closest to its tolerance."""
    tolerance: float
    cases: Count
    """Number of cases."""
    timing: Timing | None = None
    """None if the program ran in an emulator, whose speed means nothing."""
    untimed: str | None = None
    """Why there is no timing; None if there is one."""

    @model_validator(mode="after")
    def _timed_or_why_not(self) -> Self:
        if (self.timing is None) == (self.untimed is None):
            raise ValueError("a correct program has a timing, or a reason why it was not timed")
        return self

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparisons with the baselines, eager first; empty if the program was not timed."""
        return self.timing.comparisons if self.timing is not None else ()


Verdict = Annotated[
    GenerationFailure | CompilationFailure | RuntimeFailure | Mismatch | Rejected | Correct,
    Field(discriminator="state"),
]
"""The verdict on a candidate. The field `state` tells its type."""


VERDICT: TypeAdapter[Verdict] = TypeAdapter(Verdict)
"""Reads a verdict from JSON."""
