"""The result of one problem, as all metrics read it: its state, its attempts, and the speed of its best program."""

from __future__ import annotations

from kforge.records import Amount, Comparison, Positive, Record, Roofline, Usage

CORRECT, NO_KERNEL, BROKEN, DISPROVED = "correct", "no_kernel", "broken", "disproved"
WAITING, UNFINISHED, NO_ATTEMPT = "waiting", "unfinished", "no_attempt"


class AttemptResult(Record):
    """One attempt of a run, as the metrics need it."""

    state: str
    """The state of its verdict; `no_kernel` if the program is the original module, unchanged."""
    is_first: bool
    """Whether the program was written from the problem alone, so that it is an independent sample."""
    usage: Usage = Usage()
    """Cost of the attempt's model calls."""
    elapsed: Amount = 0.0
    """Wall-clock seconds of the run until the end of the attempt."""
    device_seconds: float = 0.0
    """Seconds that its evaluation and its head-to-head took: building, checking and timing."""

    @property
    def is_correct(self) -> bool:
        return self.state == CORRECT


class ProblemResult(Record):
    """The state of one problem of a suite, and how fast its best program is."""

    name: str
    family: str
    state: str
    """`correct`; `no_kernel` if only the original module, unchanged, was correct; `disproved` if no correct attempt
    stayed correct when it was evaluated again; the state of the last attempt if no attempt was correct; `no_attempt` if
    a recording had none; `broken`. Before the end: `waiting` for replies, or `unfinished`."""
    reason: str | None = None
    """Why the problem is broken, has no kernel, has no correct program, or has one that was not timed; or the questions
    that it waits for."""
    run: str | None = None
    """The run's folder. None if no run was begun."""
    attempts: int = 0
    seconds: float = 0.0
    """Wall-clock seconds of its run."""
    comparisons: tuple[Comparison, ...] = ()
    """Comparisons of the best program with the baselines: its repeated evaluations pooled, or its only evaluation."""
    labels: tuple[str, ...] = ()
    """Labels of the best program's evaluation."""
    steps: tuple[AttemptResult, ...] = ()
    """All attempts, in order."""
    usage: Usage = Usage()
    """Cost of all model calls of the run, including those that no attempt used."""
    device_seconds: float = 0.0
    """Seconds of all evaluations of the run, including the repetitions of the best program."""
    program_seconds: Positive | None = None
    """Median seconds per call of the best program; None if no program is correct or the best was not timed."""
    roofline: Roofline | None = None
    """The least time of a call that the device allows; None if no program of the run was profiled."""

    @property
    def is_done(self) -> bool:
        return self.state not in (WAITING, UNFINISHED)

    @property
    def is_correct(self) -> bool:
        return self.state == CORRECT

    def against(self, baseline: str) -> Comparison | None:
        return next((each for each in self.comparisons if each.baseline == baseline), None)

    def is_faster(self, baseline: str) -> bool:
        """Return whether the best program is proven faster than this baseline."""
        comparison = self.against(baseline)
        return comparison is not None and comparison.finding == "faster"
