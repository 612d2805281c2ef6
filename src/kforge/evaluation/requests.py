"""Records that the orchestrator and its referee send to each other as JSON documents."""

from __future__ import annotations

from kforge.records import Candidate, Problem, Record


class CandidateRequest(Record):
    """A request to evaluate, sanitize or profile one candidate on one problem."""

    problem: Problem
    candidate: Candidate
    seconds: float | None = None
    """Used for profiles only: seconds of one call, from an earlier timing of the candidate. None: the referee measures
    them."""
    is_original: bool = False
    """Used for evaluations only: whether the candidate is the problem's own module, unchanged. Then its speed is of no
    interest, so it is not compared with `torch.compile`, and timed no longer than usual."""
    counters: bool = True
    """Used for profiles only: whether to try the platform's own profilers too, besides torch's."""


class HeadToHeadRequest(Record):
    """A request to time two correct programs against each other."""

    problem: Problem
    challenger: Candidate
    rival: Candidate


class BuildRequest(Record):
    """A request to compile a candidate and its baseline in advance, without judging or timing them."""

    problem: Problem
    candidate: Candidate | None = None


class DeviceName(Record):
    """The referee's answer to "device": the name of the device that programs run on."""

    name: str


class Fitness(Record):
    """The referee's answer to "fitness": whether torch is still in the state it had before the referee opened a
    problem."""

    fit: bool
