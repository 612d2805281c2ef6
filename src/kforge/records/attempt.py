"""One iteration of a run: what was recommended, what it cost, and its result."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from kforge.records.evidence import Evaluation
from kforge.records.head_to_head import HeadToHead
from kforge.records.numbers import LARGEST, LARGEST_COUNT, Amount, Count
from kforge.records.problem import Candidate
from kforge.records.profile import Profile
from kforge.records.record import Record
from kforge.records.verdict import (
    Comparison,
    CompilationFailure,
    Correct,
    GenerationFailure,
    Interval,
    Mismatch,
    Rejected,
    RuntimeFailure,
)


class Recommendation(Record):
    """One recommendation, aimed at the bottleneck with the highest impact."""

    bottleneck: str
    action: str
    rationale: str
    evidence: str
    expected_gain: str


class Usage(Record):
    """What model calls cost. An unknown price is absent, not zero."""

    requests: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Amount | None = None

    def __add__(self, other: Usage) -> Usage:
        known = [u.cost_usd for u in (self, other) if u.cost_usd is not None]
        return Usage(
            requests=min(self.requests + other.requests, LARGEST_COUNT),
            input_tokens=min(self.input_tokens + other.input_tokens, LARGEST_COUNT),
            output_tokens=min(self.output_tokens + other.output_tokens, LARGEST_COUNT),
            cost_usd=min(sum(known), LARGEST) if known else None,
        )


class Attempt(Record):
    """One iteration: its parent, the recommendation, the program, and the verdict."""

    index: Count
    phase: Literal["functional", "optimization"]
    parent: Count | None = None
    """The attempt this one repairs or improves; absent for the first."""
    profile: Profile | None = None
    """The parent's profile, in an optimization pass."""
    recommendation: Recommendation | None = None
    candidate: Candidate | None = None
    """Absent after a generation failure."""
    unchanged: str | None = None
    """Why the candidate is the original module unchanged; absent where it is another program."""
    evaluation: Evaluation | None = None
    rival: Count | None = None
    """The attempt that was the best when this one was found correct; absent where there was none."""
    head_to_head: HeadToHead | None = None
    """This program timed against that of the rival."""
    failure: GenerationFailure | None = None
    requests: tuple[str, ...] = ()
    """Exchange identities of the model calls of this iteration."""
    usage: Usage = Usage()
    seconds: Amount = 0.0
    """Wall time of the iteration, models and evaluation together."""
    elapsed: Amount = 0.0
    """Wall time of the run until the iteration was over; an earlier session counts until its last attempt."""

    @model_validator(mode="after")
    def _one_outcome(self) -> Self:
        if (self.evaluation is None) == (self.failure is None):
            raise ValueError("an attempt has an evaluation or a generation failure, and not both")
        if (self.evaluation is None) != (self.candidate is None):
            raise ValueError("an attempt has a candidate exactly when it was evaluated")
        if (self.rival is None) != (self.head_to_head is None) or (self.rival is not None and self.candidate is None):
            raise ValueError("only a program can have a rival, and it has one exactly when the two were timed together")
        return self

    @property
    def verdict(
        self,
    ) -> GenerationFailure | CompilationFailure | RuntimeFailure | Mismatch | Rejected | Correct:
        if self.evaluation is not None:
            return self.evaluation.verdict
        assert self.failure is not None
        return self.failure

    @property
    def is_correct(self) -> bool:
        return isinstance(self.verdict, Correct)

    @property
    def is_kernel(self) -> bool:
        """Whether the program is correct, and not the original module unchanged."""
        return self.is_correct and self.unchanged is None

    @property
    def untimed(self) -> str | None:
        """Why a correct program was not timed; absent where it was."""
        return self.verdict.untimed if isinstance(self.verdict, Correct) else None

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Comparisons of a correct program with its baselines, eager first; empty for the original, which is its own
        baseline, and for a program that was not timed."""
        verdict = self.verdict
        return verdict.comparisons if isinstance(verdict, Correct) and self.unchanged is None else ()

    @property
    def speedup(self) -> Interval | None:
        """Speedup over eager; absent where the program is not correct, was not timed, or is the original itself."""
        return self.comparisons[0].speedup if self.comparisons else None
