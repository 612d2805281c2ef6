"""What reports and the dashboard show, as plain records. They hold no markup and no escaped text.

A row is small and says what tables and figures need. A story is everything about one problem, and is read only when it
is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kforge.phrases import NOT_MEASURED, finding
from kforge.records import Usage

if TYPE_CHECKING:
    from kforge.metrics import ProblemResult
    from kforge.records import Comparison, Evaluation, HeadToHead, Profile, Recommendation

Sources = Literal["run", "suite"]


@dataclass(frozen=True)
class SourceView:
    """One run or suite that a report is made from."""

    kind: Sources
    id: str
    name: str
    """Name of the problem or of the suite."""
    platform: str
    model: str
    created: str
    """When it began: ISO 8601, UTC."""
    status: str
    path: str
    workload: str = ""
    """Name of a suite's workload; empty for the sizes in the problems' files."""
    is_signed: bool = True
    """Whether the user made all of it on this machine."""


@dataclass(frozen=True)
class ProblemRow:
    """One problem of a report: its place there, and its result."""

    key: str
    """Identifies the problem within its report: `p0`, `p1`, …"""
    source: int
    """Position of its run or suite in `ReportView.sources`."""
    platform: str
    model: str
    result: ProblemResult

    @property
    def name(self) -> str:
        return self.result.name

    @property
    def finding(self) -> str:
        """The result in one word for tables and filters: `faster`, `slower` or `cannot tell` against eager for a
        correct program, `not measured` where its timing was disturbed or absent, otherwise the state."""
        if not self.result.is_correct:
            return self.result.state.replace("_", " ")
        eager = self.result.against("eager")
        return finding(eager) if eager is not None else NOT_MEASURED


@dataclass(frozen=True)
class ReportView:
    """A whole report, without the stories."""

    title: str
    sources: tuple[SourceView, ...]
    problems: tuple[ProblemRow, ...]
    baselines: tuple[str, ...]
    """Names of the baselines that any program was compared with, eager first."""

    @property
    def results(self) -> tuple[ProblemResult, ...]:
        """The results of all problems, for `kforge.metrics`."""
        return tuple(problem.result for problem in self.problems)


@dataclass(frozen=True)
class AttemptRow:
    """One attempt, without its program, profile and prompts."""

    index: int
    phase: str
    state: str
    """The state of the verdict; `no_kernel` for the original module, unchanged."""
    said: str
    """The verdict in one line."""
    parent: int | None = None
    comparisons: tuple[Comparison, ...] = ()
    """Comparisons with the baselines, eager first; empty where the program was not timed."""
    seconds: float = 0.0
    """Wall-clock seconds of the attempt."""
    elapsed: float = 0.0
    """Wall-clock seconds of the run until the attempt's end."""
    usage: Usage = field(default_factory=Usage)
    head_to_head: HeadToHead | None = None
    """Comparison of the program with the best one before it; None if the two were not timed together."""

    @property
    def is_correct(self) -> bool:
        """Whether the program is correct and not the original module."""
        return self.state == "correct"


@dataclass(frozen=True)
class CallView:
    """One question to a model, and its answer."""

    name: str
    """The beginning of its files' names: `003-analysis`."""
    agent: str
    model: str
    messages: tuple[tuple[str, str], ...]
    """Role and text of each message."""
    images: int
    reply: str | None
    """None while there is no answer."""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttemptStory:
    """Everything about one attempt."""

    row: AttemptRow
    calls: tuple[CallView, ...] = ()
    program: str | None = None
    """Source of the program; None after a generation failure."""
    before: str | None = None
    """Source of the program that it repairs or improves; None for a first program."""
    log: str = ""
    """Messages of the compiler, or the traceback."""
    profile: Profile | None = None
    """The profile of the program before, which the recommendation is about."""
    recommendation: Recommendation | None = None
    others: tuple[Recommendation, ...] = ()
    why_slower: tuple[str, ...] = ()
    """What changed between the profiles of the parent and of this slower program."""
    evaluation: Evaluation | None = None
    rival: int | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Story:
    """Everything about one problem."""

    row: ProblemRow
    problem: str
    """Source of the problem."""
    facts: tuple[tuple[str, str], ...]
    """Name and value of each fact about the run: its id, when it began, its options."""
    attempts: tuple[AttemptStory, ...]
    best: int | None = None
    """Index of the best attempt; None where none is correct."""
    repetitions: tuple[Evaluation, ...] = ()
    """Evaluations of the best program in fresh processes, after it was chosen."""
    stopped: str = ""
    """Why the run stopped; empty while it goes on."""
    left_out: str = ""
    """What this story does not hold, in a sentence; empty where it is whole."""
