"""What it takes to believe a verdict: receipts, repetitions, sanitizers."""

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
    """In whose code a program was found at random moments of its timed calls, or whose kernels its device ran."""

    authored: Count
    library: Count
    neither: Count
    """In the interpreter, or in what serves both sides; of a device, copies."""
    unit: Literal["moments", "nanoseconds"] = "moments"
    """Nanoseconds of a device's time."""

    @property
    def telling(self) -> int:
        """What belongs to one of the two."""
        return self.authored + self.library

    @property
    def authored_share(self) -> float | None:
        """Of what is telling; None where nothing is."""
        return self.authored / self.telling if self.telling else None


class Receipt(Record):
    """What it takes to believe a verdict, or to repeat it."""

    problem: str
    candidate: str
    platform: str
    precision: str
    track: str = "library"
    seed: str
    """The secret of the correctness cases, revealed only now that the verdict stands."""
    device: str
    versions: dict[str, str]
    sandbox: str
    timer: str
    samples: dict[str, tuple[Finite, ...]] = Field(default_factory=dict)
    """Raw seconds a call of every timed block, by side."""
    statistics: Count | None = None
    """Which version of kforge's statistics made the summary of these samples; absent in receipts of earlier ones."""
    stages: dict[str, Amount] = Field(default_factory=dict)
    """Seconds of wall time the evaluation spent in each stage."""
    conditions: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Clocks, power and the like as the device told them, by moment (`before timing`); empty where it does not."""
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
        """This evaluation with the timing that its repetitions give together; itself where there are none."""
        timing = replication.timing if replication is not None else None
        if timing is None or self.correct is None:
            return self
        return self.model_copy(update={"verdict": self.correct.model_copy(update={"timing": timing})})


class Replication(Record):
    """What would be reported best, evaluated again: fresh processes, new secrets."""

    evaluations: tuple[Evaluation, ...]

    @property
    def failure(self) -> Verdict | None:
        """The first repetition's verdict that was not correct."""
        return next((e.verdict for e in self.evaluations if e.correct is None), None)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """What the repetitions say together. None of them is why the program was chosen, so luck has no part in it."""
        timings = [e.correct.timing for e in self.evaluations if e.correct is not None]
        if not timings:
            return ()
        found = ([timing.against(first.baseline) for timing in timings] for first in timings[0].comparisons)
        return tuple(pooled([each for each in same if each is not None]) for same in found)

    @property
    def timing(self) -> Timing | None:
        """All of the repetitions together; absent where none was correct."""
        timings = [e.correct.timing for e in self.evaluations if e.correct is not None]
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
        """How many of the repetitions did not measure the speedup over eager, because something disturbed them."""
        timings = [e.correct.timing for e in self.evaluations if e.correct is not None]
        return sum(timing.comparisons[0].doubt is not None for timing in timings)

    @property
    def lowest(self) -> float:
        """The lowest median over eager; of those that were not disturbed, unless all were."""
        eager = [e.correct.timing.comparisons[0] for e in self.evaluations if e.correct is not None]
        sure = [each for each in eager if each.doubt is None]
        return min(each.speedup.median for each in sure or eager)

    @property
    def speedups(self) -> tuple[float, ...]:
        """Medians over eager of the repetitions that were correct, from the worst to the best."""
        return tuple(sorted(e.correct.timing.speedup.median for e in self.evaluations if e.correct is not None))


class SanitizedClean(Record):
    state: Literal["clean"] = "clean"
    sanitizer: str
    """Every one that looked at the program and found nothing."""
    cases: Count
    """That the one with the fewest was run on."""
    not_run: tuple[str, ...] = ()
    """Those of the platform's sanitizers that say nothing about the program, each with its reason."""


class SanitizerFinding(Record):
    """A program that passed without a sanitizer does not with one."""

    state: Literal["finding"] = "finding"
    sanitizer: str
    failure: RuntimeFailure | Mismatch | Rejected = Field(discriminator="state")
    """What a repair needs, as if the program had failed by itself."""


class NotSanitized(Record):
    """No statement: there is no sanitizer, or it could not look at the program."""

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
    """An evaluation with all it takes to repeat it: what a receipt file holds."""

    not_identity: ClassVar[frozenset[str]] = frozenset({"signature"})

    problem: Problem
    candidate: Candidate
    evaluation: Evaluation
    signature: str | None = None
    """By the key of the user who made it (`kforge.store.signature`); it means nothing to others."""

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        receipt = self.evaluation.receipt
        if (receipt.problem, receipt.candidate) != (self.problem.digest, self.candidate.digest):
            raise ValueError("the receipt is of another problem or candidate than the ones beside it")
        return self
