"""Carries the best program of a finished run to other platforms: the same problem is forged there, with that program as
the reference implementation and, to compare, without it.

For each target, the folder of runs gets one run with the reference and one without it. A run that exists already is not
repeated, so a transfer that was interrupted goes on when it is started again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.errors import InputError, PlatformError, RunError, WaitingForReplies
from kforge.records import Record
from kforge.run_options import RunOptions, first_writer
from kforge.session import Session, open_judge, usable_platform
from kforge.smith import NAME as BUILTIN
from kforge.smith.plan import said_in
from kforge.store import RunFolder, run_paths
from kforge.suite.results import WAITING, ProblemResult, result_of_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kforge.evaluation import Judge
    from kforge.records import Problem
    from kforge.settings import Settings

UNAVAILABLE = "unavailable"
"""State of a target that cannot be used here."""


class Carried(Record):
    """The result on one target, with or without the reference implementation."""

    platform: str
    with_reference: bool
    result: ProblemResult
    passes: int | None = None
    """Number of programs that were written until one was correct; None where none was."""


@dataclass(frozen=True)
class Source:
    """The problem, and the program that is carried over."""

    problem: Problem
    program: str
    platform: str

    @classmethod
    def of(cls, run: RunFolder) -> Source:
        """Return the best program of a run. Raises InputError where it has none."""
        best = run.best()
        if best is None or best.candidate is None:
            raise InputError(f"run {run.id} has no correct program to carry over")
        return cls(run.header.problem, best.candidate.source, best.candidate.platform)


class Transfer:
    """Forges one problem on several platforms."""

    def __init__(
        self, source: Source, options: RunOptions, settings: Settings, *, root: Path, extra: Sequence[Path] = ()
    ) -> None:
        """`options`: those of every run; platform and reference are set here. `extra`: folders of further platforms."""
        self.source = source
        self.options = options
        self.settings = settings
        self.root = root
        self.extra = extra

    def to(
        self, platform: str, *, compare: bool = True, watch: Callable[[str], None] = lambda _: None
    ) -> Iterator[Carried]:
        """Yield the result on this platform without the reference, if `compare`, and then the one with it.

        Neither run knows of the other.
        """
        try:
            usable = usable_platform(platform, self.settings, self.extra)
        except PlatformError as error:
            yield self._carried(platform, self._result(UNAVAILABLE, str(error)), with_reference=True)
            return
        with open_judge(usable, self.settings, self.options.policy, [self.root]) as judge:
            for with_reference in (False, True) if compare else (True,):
                judge.freshen()
                run, waits = self._work(self._options(platform, with_reference=with_reference), judge, watch)
                result = result_of_run(self.source.problem.name, "", run)
                result = result.model_copy(update={"state": WAITING}) if waits else result
                yield self._carried(platform, result, run, with_reference=with_reference)

    def _options(self, platform: str, *, with_reference: bool) -> RunOptions:
        reference = self.source.program if with_reference else ""
        origin = self.source.platform if with_reference else ""
        update = {"platform": platform, "reference": reference, "reference_platform": origin}
        return self.options.model_copy(update=update)

    def _work(self, options: RunOptions, judge: Judge, watch: Callable[[str], None]) -> tuple[RunFolder, bool]:
        """Work on the run with these options. Returns the run, and whether it waits for replies."""
        session = self._session(options, judge, watch)
        try:
            with session:
                for _ in session.attempts(watch):
                    pass
        except WaitingForReplies:
            return session.run, True
        return session.run, False

    def _session(self, options: RunOptions, judge: Judge, watch: Callable[[str], None]) -> Session:
        # as `Session.begin` stores it: a run of a model has no plan, even if the smith wrote the reference
        by_smith = first_writer(options.model, options.seed) == BUILTIN
        plan = (said_in(options.reference) or "") if by_smith else ""
        if (run := self._begun(options, plan)) is not None:
            return Session.resume(run, self.settings, judge)
        return Session.begin(
            self.source.problem,
            options,
            self.settings,
            root=self.root,
            extra=self.extra,
            judge=judge,
            plan=plan,
            watch=watch,
        )

    def _begun(self, options: RunOptions, plan: str) -> RunFolder | None:
        """Return the latest run that this user began with these options; None if the user began no such run."""
        wanted = options.model_copy(update={"plan": plan}).model_dump()
        for path in reversed(run_paths(self.root)):
            try:
                run = RunFolder.open(path)
            except RunError:
                continue
            chosen = {name: value for name, value in run.header.options.items() if name != "platform_dirs"}
            same = run.header.problem.digest == self.source.problem.digest and chosen == wanted
            if same and run.is_signed(self.settings.signing_key):
                return run
        return None

    def _result(self, state: str, reason: str) -> ProblemResult:
        return ProblemResult(name=self.source.problem.name, family="", state=state, reason=reason)

    def _carried(
        self, platform: str, result: ProblemResult, run: RunFolder | None = None, *, with_reference: bool
    ) -> Carried:
        attempts = run.attempts() if run is not None else ()
        passes = next((attempt.index + 1 for attempt in attempts if attempt.is_correct), None)
        return Carried(platform=platform, with_reference=with_reference, result=result, passes=passes)
