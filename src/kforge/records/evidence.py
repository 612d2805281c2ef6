"""The evidence for a verdict: receipts, repeated evaluations, and results of sanitizers."""

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
    """How much of the work was done by the program's own code and by libraries: as samples at random moments of timed
    calls, or as time of the kernels that a device ran."""

    authored: Count
    """Moments (or nanoseconds) in the program's own code."""
    library: Count
    """Moments (or nanoseconds) in the code of libraries."""
    neither: Count
    """Moments in the interpreter and in code that serves both; on a device, nanoseconds of copies."""
    unit: Literal["moments", "nanoseconds"] = "moments"
    """What is counted: moments, or nanoseconds of device time."""

    @property
    def telling(self) -> int:
        """The sum of `authored` and `library`."""
        return self.authored + self.library

    @property
    def total(self) -> int:
        """The sum of `authored`, `library` and `neither`, in the unit `unit`."""
        return self.telling + self.neither

    @property
    def authored_share(self) -> float | None:
        """The program's own share of `telling`; None if `telling` is zero."""
        return self.authored / self.telling if self.telling else None


class Receipt(Record):
    """Everything that is needed to check a verdict or to repeat it."""

    problem: str
    """Digest of the problem."""
    candidate: str
    """Digest of the candidate."""
    platform: str
    precision: str
    """Declared precision: `strict`, `tf32` or `half`."""
    track: str = "library"
    """`library` or `custom`: whether library kernels may do the work."""
    seed: str
    """The secret from which the correctness cases were drawn. It is revealed only after the verdict."""
    device: str
    versions: dict[str, str]
    """Versions of torch, Python and other software, by name."""
    sandbox: str
    """What the sandbox protected and what it did not."""
    timer: str
    """How time was measured."""
    samples: dict[str, tuple[Finite, ...]] = Field(default_factory=dict)
    """Raw seconds per call of each timed block, by side, and other raw numbers of the timing."""
    statistics: Count | None = None
    """Version of the method that computed the summary from `samples`. None in receipts of old versions of kforge."""
    stages: dict[str, Amount] = Field(default_factory=dict)
    """Seconds of wall time of each stage of the evaluation."""
    conditions: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Clocks, power and other conditions that the device reported, by moment such as `before timing`. Empty if it
    reports none."""
    unavailable: dict[str, str] = Field(default_factory=dict)
    """Baselines that were requested but could not be measured, with the reason."""
    trace: Trace | None = None
    """How much of the work the program's own code did. None if this is not known, or if the program was not timed."""


class Evaluation(Record):
    """A verdict on a candidate, with its receipt and labels."""

    verdict: Verdict
    receipt: Receipt
    labels: tuple[str, ...] = ()
    """Remarks that a reader of the verdict must know."""

    @property
    def correct(self) -> Correct | None:
        """The verdict if it is `Correct`; otherwise None."""
        return self.verdict if isinstance(self.verdict, Correct) else None

    def with_timing_of(self, replication: Replication | None) -> Evaluation:
        """Return this evaluation with the combined timing of its repetitions; unchanged if there are none."""
        timing = replication.timing if replication is not None else None
        if timing is None or self.correct is None:
            return self
        return self.model_copy(update={"verdict": self.correct.model_copy(update={"timing": timing})})


class Replication(Record):
    """Repeated evaluations of the best program of a run, in fresh processes with new secrets."""

    evaluations: tuple[Evaluation, ...]

    @property
    def failure(self) -> Verdict | None:
        """The verdict of the first repetition that was not correct; None if all were correct."""
        return next((e.verdict for e in self.evaluations if e.correct is None), None)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The combined comparisons of all repetitions. The program was chosen before they ran, so its choice does not
        bias them."""
        timings = self._timings
        if not timings:
            return ()
        found = ([timing.against(first.baseline) for timing in timings] for first in timings[0].comparisons)
        return tuple(pooled([each for each in same if each is not None]) for same in found)

    @property
    def timing(self) -> Timing | None:
        """The combined timing of all repetitions; None if none was correct and timed."""
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
        """Number of repetitions whose speedup over eager is in doubt."""
        return sum(timing.comparisons[0].doubt is not None for timing in self._timings)

    @property
    def lowest(self) -> float:
        """The lowest median speedup over eager among the undisturbed repetitions; among all if all were disturbed."""
        eager = [timing.comparisons[0] for timing in self._timings]
        sure = [each for each in eager if each.doubt is None]
        return min(each.speedup.median for each in sure or eager)

    @property
    def speedups(self) -> tuple[float, ...]:
        """Median speedups over eager of the timed repetitions, in ascending order."""
        return tuple(sorted(timing.speedup.median for timing in self._timings))

    @property
    def _timings(self) -> list[Timing]:
        return [e.correct.timing for e in self.evaluations if e.correct is not None and e.correct.timing is not None]


class SanitizedClean(Record):
    """The platform's sanitizers checked the program and found no error."""

    state: Literal["clean"] = "clean"
    sanitizer: str
    """Names of the sanitizers that checked the program."""
    cases: Count
    """Number of cases; if sanitizers ran different numbers, the smallest."""
    not_run: tuple[str, ...] = ()
    """Why the platform's other sanitizers could not check the program, one reason each."""


class SanitizerFinding(Record):
    """A sanitizer found an error in a program that is correct or died without it."""

    state: Literal["finding"] = "finding"
    sanitizer: str
    failure: RuntimeFailure | Mismatch | Rejected = Field(discriminator="state")
    """The finding as a verdict, so that a repair can use it."""


class NotSanitized(Record):
    """No sanitizer could check the program; `reason` says why."""

    state: Literal["unavailable"] = "unavailable"
    reason: str


class Sanitization(Record):
    """The result of a further run of a program that was correct or died, under its platform's sanitizers."""

    outcome: SanitizedClean | SanitizerFinding | NotSanitized = Field(discriminator="state")
    seconds: Amount = 0.0
    """Wall time of all runs under sanitizers."""

    @property
    def finding(self) -> SanitizerFinding | None:
        """The finding, if there is one; otherwise None."""
        return self.outcome if isinstance(self.outcome, SanitizerFinding) else None

    def explained(self, died: RuntimeFailure) -> RuntimeFailure:
        """Return the verdict on a program that died, with what the sanitizers say about it: the error and its place in
        the kernel, or that they found nothing."""
        match self.outcome:
            case SanitizerFinding(sanitizer=name, failure=RuntimeFailure() as failure) if failure.reason != died.reason:
                reason = f"{died.reason}; under {name}: {failure.reason}"
                return died.model_copy(update={"reason": reason, "log": failure.log or died.log})
            case SanitizedClean(sanitizer=name, cases=cases):
                return died.model_copy(update={"reason": f"{died.reason}; {name} found nothing in {cases} cases"})
        return died


class Proof(Record):
    """An evaluation with its problem and candidate: everything that is needed to repeat it. The content of a receipt
    file."""

    not_identity: ClassVar[frozenset[str]] = frozenset({"signature"})

    problem: Problem
    candidate: Candidate
    evaluation: Evaluation
    signature: str | None = None
    """Signature by the key of the user who made the file (`kforge.store.signature`). Only that user can check it."""

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        receipt = self.evaluation.receipt
        if (receipt.problem, receipt.candidate) != (self.problem.digest, self.candidate.digest):
            raise ValueError("the receipt is of another problem or candidate than the ones beside it")
        return self
