"""The two agents F and G as protocols, and the types that they exchange with the loop.

F: (problem, k_{t-1}, r_{t-1}) -> k_t     the generation agent writes, repairs and optimizes a program
G: (problem, k_t, profile) -> r_t         the performance analysis agent gives one recommendation
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from pydantic import model_validator

from kforge.errors import NothingLeft
from kforge.records import (
    Attempt,
    Candidate,
    CompilationFailure,
    Correct,
    GenerationFailure,
    Mismatch,
    Problem,
    Profile,
    Recommendation,
    Record,
    Rejected,
    RuntimeFailure,
    Usage,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

IMAGES_NOT_SEEN = "images_not_seen"
"""Label of an attempt whose recommendation was made without the images, because the model refuses them."""

Failed = GenerationFailure | CompilationFailure | RuntimeFailure | Mismatch | Rejected
"""Every verdict that a functional pass repairs."""


class Answer(Record):
    """What the generation agent returned: a program, or the reason why none could be read."""

    candidate: Candidate | None = None
    failure: GenerationFailure | None = None
    requests: tuple[str, ...]
    """Exchange identities of the calls: one, and one more when the first answer could not be read."""
    usage: Usage
    labels: tuple[str, ...] = ()
    """Facts that a reader should know about how the program was made, and that no evaluator can see: `algebraic`."""
    remarks: tuple[str, ...] = ()
    """What was unusual about the model's answers, a sentence each, for the user and for the next prompt."""
    unchanged: str | None = None
    """Why the candidate is the original module unchanged; absent where it is another program."""

    @model_validator(mode="after")
    def _one_outcome(self) -> Self:
        if (self.candidate is None) == (self.failure is None):
            raise ValueError("an answer has a candidate or a failure, and not both")
        return self


UNADVISED = Recommendation(
    bottleneck="not analysed",
    action="Make the program faster.",
    rationale="This run reads no profile.",
    evidence="none",
    expected_gain="not known",
)
"""Stands in for a recommendation in a run without the performance analysis agent."""


class Advice(Record):
    """What the performance analysis agent returned."""

    recommendation: Recommendation
    others: tuple[Recommendation, ...] = ()
    """Further ideas, best first: at most two, which are kept for later attempts."""
    requests: tuple[str, ...]
    """Exchange identities of the calls: one, one more when an answer could not be read, and one more when images were
    refused."""
    usage: Usage
    labels: tuple[str, ...] = ()
    """Facts that a reader should know about how the recommendation was made: `images_not_seen`."""
    remarks: tuple[str, ...] = ()
    """What was unusual about the model's answers, a sentence each."""


class NothingWorthTrying(NothingLeft):
    """A model sees no further change that is worth trying for a program, and says which numbers show it."""

    def __init__(self, reason: str, evidence: str, requests: tuple[str, ...], usage: Usage) -> None:
        """`requests`: exchange identities of the calls. `usage`: what they cost."""
        super().__init__(reason, evidence, requests, usage)
        self.reason = reason
        self.evidence = evidence
        self.requests = requests
        self.usage = usage

    def __str__(self) -> str:
        return (
            f"the performance analysis agent has nothing left worth trying: {self.reason} (evidence: {self.evidence})"
        )


class Tried(Record):
    """A recommendation that was followed to rewrite the present program, and the result."""

    recommendation: Recommendation
    outcome: str
    """The result in a few words: `the rewrite failed (runtime error)`, `the rewrite was correct and slower (0.93x)`."""
    given_up: bool = False
    """Whether a correct program of the idea was slower. A failed or undecided program says nothing against the idea."""


class Generator(Protocol):
    """The generation agent F. It raises NothingLeft, and with a model also what `LanguageModel.complete` raises."""

    def at(self, step: int, attempts: Sequence[Attempt] = ()) -> Generator:
        """Return the agent for the attempt with the index `step`. Equal prompts for two attempts are asked twice.

        `attempts`: all attempts of the run so far, which prompts describe. Several agents may be asked at the same
        time, each in a thread of its own.
        """
        ...

    def write(self, problem: Problem, workload: Workload) -> Answer:
        """Write a first program."""
        ...

    def repair(
        self,
        problem: Problem,
        workload: Workload,
        candidate: Candidate | None,
        verdict: Failed,
        *,
        repeats: int = 0,
    ) -> Answer:
        """Repair a program after its verdict (a functional pass).

        `candidate` is absent after a generation failure. `repeats` says how often the same program (or no program) came
        before with the same state, so that the same question is not asked twice.
        """
        ...

    def optimize(
        self,
        problem: Problem,
        workload: Workload,
        candidate: Candidate,
        verdict: Correct,
        recommendation: Recommendation,
        tried: Sequence[Tried] = (),
    ) -> Answer:
        """Rewrite a correct program along a recommendation (an optimization pass)."""
        ...


class Analyst(Protocol):
    """The performance analysis agent G.

    It raises NothingLeft, and with a model also what `LanguageModel.complete` raises.
    """

    reads_history: bool
    """Whether its prompts say why rewrites were slower. Only then are slower rewrites profiled, in seconds each."""

    def at(self, step: int, attempts: Sequence[Attempt] = ()) -> Analyst:
        """Return the agent for the attempt with the index `step`. `attempts`: all attempts of the run so far."""
        ...

    def recommend(
        self,
        problem: Problem,
        workload: Workload,
        candidate: Candidate,
        profile: Profile,
        tried: Sequence[Tried] = (),
        untried: Sequence[Recommendation] = (),
    ) -> Advice:
        """Return one recommendation for the bottleneck with the highest impact, and up to two further ideas.

        `tried`: earlier recommendations for this program. Those that are given up are not made again. `untried`: ideas
        for other programs of the run that no attempt has followed. Raises NothingLeft if no change is worth trying.
        """
        ...
