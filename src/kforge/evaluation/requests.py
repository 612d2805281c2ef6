"""Messages between the orchestrator and its referee: one candidate on one problem, and the device."""

from __future__ import annotations

from kforge.records import Candidate, Problem, Record


class CandidateRequest(Record):
    problem: Problem
    candidate: Candidate
    seconds: float | None = None
    """For a profile: the seconds of a call when the candidate was timed, where that is known."""
    counters: bool = True
    """For a profile: whether the platform's own profilers are tried, beside torch's."""


class HeadToHeadRequest(Record):
    """Two correct programs to be timed against each other."""

    problem: Problem
    challenger: Candidate
    rival: Candidate


class BuildRequest(Record):
    """A request to build before anything is timed."""

    problem: Problem
    candidate: Candidate | None = None


class DeviceName(Record):
    """The referee's answer about its device."""

    name: str


class Fitness(Record):
    """Whether a referee is unchanged since before it opened its first problem."""

    fit: bool
