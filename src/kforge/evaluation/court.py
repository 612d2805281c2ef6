"""What the orchestrator tells a referee once, when it opens: where things are and by which rules it judges."""

from __future__ import annotations

from kforge.records import Candidate, Problem, Record


class Court(Record):
    platform_folder: str
    cache: str
    work: str
    tool_path: str
    threads: int
    precision: str
    compile_baseline: bool
    """Whether candidates are also compared with `torch.compile`."""
    call_deadline: float
    """Seconds that one call of a candidate, or one timed block, may take."""
    worker_environment: dict[str, str]
    """What the platform adds to a worker's environment."""
    device_nodes: tuple[str, ...]
    """What a worker may open in /dev, as the platform names it."""
    ladder: tuple[str, ...]
    """The sandbox layers that may be used, best first."""


class Case(Record):
    """One candidate on one problem."""

    problem: Problem
    candidate: Candidate
    seconds: float | None = None
    """For a profile: what a call took when the candidate was timed, where that is known."""
