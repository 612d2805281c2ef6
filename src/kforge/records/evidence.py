"""The evidence for a verdict: receipts, repetitions, sanitizers."""

from __future__ import annotations

from statistics import median
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from kforge.records.numbers import LARGEST_COUNT, Amount, Count, Finite
from kforge.records.problem import Candidate, Problem
from kforge.records.record import Record
from kforge.records.verdict import (
    Comparison,
    Correct,
    Interval,
    Mismatch,
    Rejected,
    RuntimeFailure,
    Timing,
    Verdict,
    pooled,
)


class Trace(Record):
    """Whose code a program ran: found at random moments of its timed calls, or by the kernels that its device ran."""

    authored: Count
    library: Count
    neither: Count
    """Moments in the interpreter or in code that serves both sides; on a device, time of copies."""
    unit: Literal["moments", "nanoseconds"] = "moments"
    """What is counted: moments, or nanoseconds of a device's time."""

    @property
    def telling(self) -> int:
        """The count that belongs to the program or to a library."""
        return self.authored + self.library

    @property
    def moments(self) -> int:
        """Everything that was counted."""
        return self.telling + self.neither

    @property
    def authored_share(self) -> float | None:
        """The program's own share of `telling`; None where `telling` is zero."""
        return self.authored / self.telling if self.telling else None


class Receipt(Record):
    """What is needed to believe a verdict, or to repeat it."""

    problem: str
    candidate: str
    platform: str
    precision: str
    track: str = "library"
    seed: str
    """The secret of the correctness cases, revealed only after the verdict."""
    device: str
    versions: dict[str, str]
    sandbox: str
    timer: str
    samples: dict[str, tuple[Finite, ...]] = Field(default_factory=dict)
    """Raw seconds per call of every timed block, by side."""
    statistics: Count | None = None
    """Version of kforge's statistics that made the summary of these samples; absent in receipts of earlier versions."""
    stages: dict[str, Amount] = Field(default_factory=dict)
    """Seconds of wall time the evaluation spent in each stage."""
    conditions: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Clocks, power and other conditions that the device reported, by moment (`before timing`); empty where it reports
    none."""
    unavailable: dict[str, str] = Field(default_factory=dict)
    """Baselines that were asked for and could not be measured, with the reason."""
    trace: Trace | None = None
    """Absent where it cannot be taken, or the program was not timed."""


class Evaluation(Record):
    """A verdict with its receipt."""

    verdict: Verdict
    receipt: Receipt
    labels: tuple[str, ...] = ()

    @property
    def correct(self) -> Correct | None:
        return self.verdict if isinstance(self.verdict, Correct) else None

    def led_by(self, replication: Replication | None) -> Evaluation:
        """Return this evaluation with the timing of all its repetitions together; itself where there are none."""
        timing = replication.timing if replication is not None else None
        if timing is None or self.correct is None:
            return self
        return self.model_copy(update={"verdict": self.correct.model_copy(update={"timing": timing})})


class Replication(Record):
    """Repeated evaluations of the program that would be reported best, in fresh processes with new secrets."""

    evaluations: tuple[Evaluation, ...]

    @property
    def failure(self) -> Verdict | None:
        """The verdict of the first repetition that was not correct; None where all were."""
        return next((e.verdict for e in self.evaluations if e.correct is None), None)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparisons of all repetitions together. The program was chosen before they ran, so they are not biased
        by that choice."""
        timings = self._timings
        if not timings:
            return ()
        found = ([timing.against(first.baseline) for timing in timings] for first in timings[0].comparisons)
        return tuple(pooled([each for each in same if each is not None]) for same in found)

    @property
    def timing(self) -> Timing | None:
        """The timing of all repetitions together; absent where none was correct, or none was timed."""
        timings = self._timings
        if not timings:
            return None
        seconds = [timing.seconds for timing in timings]
        return Timing(
            seconds=Interval(
                median=median(each.median for each in seconds),
                low=min(each.low for each in seconds),
                high=max(each.high for each in seconds),
            ),
            comparisons=self.comparisons,
            pairs=min(sum(timing.pairs for timing in timings), LARGEST_COUNT),
        )

    @property
    def disturbed(self) -> int:
        """Number of repetitions that did not measure the speedup over eager, because something disturbed them."""
        return sum(timing.comparisons[0].doubt is not None for timing in self._timings)

    @property
    def lowest(self) -> float:
        """The lowest median over eager, among the undisturbed repetitions; among all where all were disturbed."""
        eager = [timing.comparisons[0] for timing in self._timings]
        sure = [each for each in eager if each.doubt is None]
        return min(each.speedup.median for each in sure or eager)

    @property
    def speedups(self) -> tuple[float, ...]:
        """Medians over eager of the timed repetitions, from the worst to the best."""
        return tuple(sorted(timing.speedup.median for timing in self._timings))

    @property
    def _timings(self) -> list[Timing]:
        return [e.correct.timing for e in self.evaluations if e.correct is not None and e.correct.timing is not None]


class SanitizedClean(Record):
    state: Literal["clean"] = "clean"
    sanitizer: str
    """Names of the sanitizers that checked the program and found nothing."""
    cases: Count
    """Number of cases of the sanitizer that ran on the fewest."""
    not_run: tuple[str, ...] = ()
    """The platform's sanitizers that say nothing about the program, each with its reason."""


class SanitizerFinding(Record):
    """A sanitizer's finding in a program that passes without the sanitizer."""

    state: Literal["finding"] = "finding"
    sanitizer: str
    failure: RuntimeFailure | Mismatch | Rejected = Field(discriminator="state")
    """The failure as a repair reads it, as if the program had failed without the sanitizer."""


class NotSanitized(Record):
    """No statement: there is no sanitizer, or it could not check the program."""

    state: Literal["unavailable"] = "unavailable"
    reason: str


class Sanitization(Record):
    """What a platform's sanitizer says about a correct program."""

    outcome: SanitizedClean | SanitizerFinding | NotSanitized = Field(discriminator="state")
    seconds: Amount = 0.0

    @property
    def finding(self) -> SanitizerFinding | None:
        return self.outcome if isinstance(self.outcome, SanitizerFinding) else None


class Proof(Record):
    """An evaluation with everything that is needed to repeat it: the content of a receipt file."""

    not_identity: ClassVar[frozenset[str]] = frozenset({"signature"})

    problem: Problem
    candidate: Candidate
    evaluation: Evaluation
    signature: str | None = None
    """Signature by the key of the user who made it (`kforge.store.signature`); it proves nothing to others."""

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        receipt = self.evaluation.receipt
        if (receipt.problem, receipt.candidate) != (self.problem.digest, self.candidate.digest):
            raise ValueError("the receipt is of another problem or candidate than the ones beside it")
        return self
