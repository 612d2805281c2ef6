"""Records of one iteration of a run: the recommendation, the cost, and the result."""

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
    """One recommendation of the performance analysis agent, for the bottleneck with the highest impact."""

    bottleneck: str
    action: str
    rationale: str
    evidence: str
    expected_gain: str


class Usage(Record):
    """Number and cost of model calls. An unknown price is None, not zero."""

    requests: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Amount | None = None
    unpriced: Count | None = None
    """Number of calls whose price is unknown and so not in `cost_usd`. None if there are none, or no price is known."""

    @property
    def calls_without_price(self) -> int:
        return self.requests if self.cost_usd is None else self.unpriced or 0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum. Its price is that of all calls with a known price; None if no call has one."""
        known = [u.cost_usd for u in (self, other) if u.cost_usd is not None]
        return Usage(
            requests=min(self.requests + other.requests, LARGEST_COUNT),
            input_tokens=min(self.input_tokens + other.input_tokens, LARGEST_COUNT),
            output_tokens=min(self.output_tokens + other.output_tokens, LARGEST_COUNT),
            cost_usd=min(sum(known), LARGEST) if known else None,
            unpriced=(self.calls_without_price + other.calls_without_price) or None if known else None,
        )


class Attempt(Record):
    """One iteration of a run: its parent, the recommendation, the program and the verdict."""

    index: Count
    phase: Literal["functional", "optimization"]
    """Functional pass (get a correct program) or optimization pass (make it faster)."""
    parent: Count | None = None
    """Index of the attempt that this one repairs or improves; None for the first."""
    profile: Profile | None = None
    """The parent's profile, in an optimization pass."""
    recommendation: Recommendation | None = None
    """The recommendation that was followed, in an optimization pass."""
    others: tuple[Recommendation, ...] = ()
    """Further ideas of the same advice, best first, which later attempts may follow."""
    candidate: Candidate | None = None
    """The program; None after a generation failure."""
    unchanged: str | None = None
    """Why the candidate is the original module, unchanged; None if it is another program."""
    evaluation: Evaluation | None = None
    rival: Count | None = None
    """Index of the attempt that was the best when this one was found correct; None if there was none."""
    head_to_head: HeadToHead | None = None
    """The result of timing this program against the rival's; None without a rival."""
    why_slower: tuple[str, ...] = ()
    """Differences between the profiles of the parent and of this slower program, one line each. Empty if the program is
    not slower, if the profiles were not compared, or if they do not explain it."""
    failure: GenerationFailure | None = None
    """The generation failure, if no program could be read; otherwise None."""
    exhausted: tuple[Count, ...] = ()
    """Indices of attempts for whose programs the analysis agent, before this attempt, saw nothing left worth trying."""
    requests: tuple[str, ...] = ()
    """Identities of this iteration's model calls in the exchange folder."""
    remarks: tuple[str, ...] = ()
    """Unusual facts about the agents' answers, one sentence each: that an answer could not be read and was requested
    again, or that its evidence is not in the profile."""
    usage: Usage = Usage()
    seconds: Amount = 0.0
    """Wall time of the iteration: models and evaluation."""
    elapsed: Amount = 0.0
    """Wall time of the run until the end of the iteration. An earlier session counts until its last attempt."""

    @model_validator(mode="after")
    def _one_outcome(self) -> Self:
        if (self.evaluation is None) == (self.failure is None):
            raise ValueError("an attempt has an evaluation or a generation failure, and not both")
        if (self.evaluation is None) != (self.candidate is None):
            raise ValueError("an attempt has a candidate exactly when it was evaluated")
        if (self.rival is None) != (self.head_to_head is None) or (self.rival is not None and self.candidate is None):
            raise ValueError("only an attempt with a program has a rival, and it has one exactly with a head-to-head")
        return self

    @property
    def verdict(
        self,
    ) -> GenerationFailure | CompilationFailure | RuntimeFailure | Mismatch | Rejected | Correct:
        """The verdict of the evaluation, or the generation failure."""
        if self.evaluation is not None:
            return self.evaluation.verdict
        assert self.failure is not None
        return self.failure

    @property
    def is_correct(self) -> bool:
        return isinstance(self.verdict, Correct)

    @property
    def is_kernel(self) -> bool:
        """Whether the program is correct and not the original module."""
        return self.is_correct and self.unchanged is None

    @property
    def untimed(self) -> str | None:
        """Why a correct program was not timed; None if it was timed or is not correct."""
        return self.verdict.untimed if isinstance(self.verdict, Correct) else None

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparisons with the baselines, eager first. Empty for a program that is not correct, was not timed, or
        is the original module."""
        verdict = self.verdict
        return verdict.comparisons if isinstance(verdict, Correct) and self.unchanged is None else ()

    @property
    def speedup(self) -> Interval | None:
        """Speedup over eager; None if the program is not correct, was not timed, or is the original module."""
        return self.comparisons[0].speedup if self.comparisons else None
