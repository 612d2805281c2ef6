"""What the orchestrator and its referee tell each other: one candidate on one problem, and which device it is."""

from __future__ import annotations

from kforge.records import Candidate, Problem, Record


class CandidateRequest(Record):
    problem: Problem
    candidate: Candidate
    seconds: float | None = None
    """For a profile: what a call took when the candidate was timed, where that is known."""
    counters: bool = True
    """For a profile: whether the platform's own profilers are tried, beside torch's."""


class BuildRequest(Record):
    """What is to be built before anything is timed."""

    problem: Problem
    candidate: Candidate | None = None


class Device(Record):
    """What the referee answers when it is asked for its device."""

    name: str


class Fitness(Record):
    """Whether a referee is as it was before it opened its first problem."""

    fit: bool
