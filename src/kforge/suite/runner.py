"""Works through a suite, one problem after the other. A problem that fails does not stop the others.

Finished problems are not repeated, so a suite that was killed is continued by running it again. A problem that failed
for another reason than its programs (a provider that was down, an evaluator that crashed) is then tried again.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kforge.errors import EvaluationError, InputError, ProblemError, ProviderError, RunError, WaitingForReplies
from kforge.run_options import RunOptions, options_of
from kforge.session import Session, open_judge, usable_platform
from kforge.store import Breakdown, Consent, SuiteFolder, SuiteHeader
from kforge.suite import ahead
from kforge.suite.metrics import Metrics, by_family, summarize
from kforge.suite.results import WAITING, result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kforge.evaluation import Judge
    from kforge.problems import Suite, Task
    from kforge.settings import Settings
    from kforge.suite.results import ProblemResult


class SuiteSession:
    """Work on one suite. The results so far are in `results`, in the order of its problems."""

    def __init__(self, folder: SuiteFolder, settings: Settings, consent: Consent | None = None) -> None:
        """`consent` is what the user allows if somebody else began the suite. Raises RunError if a permission is
        missing."""
        self._trust = consent is not None and consent.trust
        folder.admit(settings.signing_key, consent or Consent())
        if not self._trust:
            folder.hold_to(settings.signing_key)
        self.folder = folder
        self.settings = settings
        self.options = options_of(folder.header.options, str(folder.path))
        self.results: list[ProblemResult] = []
        self._judge: Judge | None = None
        """One judge for all problems, because starting a judge takes seconds."""
        self._untouched = False
        """Whether no run has begun in the folder yet."""

    @classmethod
    def begin(
        cls,
        suite: Suite,
        options: RunOptions,
        settings: Settings,
        *,
        root: Path,
        workload: str = "",
        only: str = "",
        extra: Sequence[Path] = (),
    ) -> Self:
        """Create the suite's folder, and return the session. Raises InputError if there is nothing to work on."""
        header = SuiteHeader.new(
            suite=suite.name,
            workload=workload,
            tasks=tuple(suite.tasks(workload, only)),
            options=options.model_dump(),
            platform_dirs=tuple(str(path.absolute()) for path in extra),
        )
        folder = SuiteFolder.create(root, header, settings.signing_key)
        everything = Consent(
            trust=True, unsafe=True, platform_dirs=tuple(extra), models=frozenset({options.model, options.analyst})
        )
        # this user begins the suite now, so it is trusted even if no key could sign it
        session = cls(folder, settings, everything)
        session._trust = False  # only what is made from now on is in it
        folder.hold_to(settings.signing_key)
        session._untouched = True
        return session

    @property
    def baselines(self) -> tuple[str, ...]:
        return baselines_of(self.folder)

    def work(self, watch: Callable[[Task, str], None] = lambda *_: None, builders: int = 0) -> Iterator[ProblemResult]:
        """Finish every problem. Yields the result of each, also of those that were finished before.

        `builders` is the number of processes that build programs before anything is timed.

        Raises InputError for an error that would stop every problem (a model or platform that cannot be used), and
        RunError if another process works on the suite.
        """
        try:
            with self.folder.writing():
                if builders:
                    self._build(builders, watch)
                for task in self.folder.header.tasks:
                    self.results.append(self._carry_out(task, watch))
                    yield self.results[-1]
        except InputError:
            if self._untouched:
                self.folder.discard()
            raise
        finally:
            if self._judge is not None:
                self._judge.close()

    def _build(self, jobs: int, watch: Callable[[Task, str], None]) -> None:
        usable_platform(self.options.platform, self.settings, self._extra)
        left = [task for task in self.folder.header.tasks if not self.folder.is_finished(task)]
        for number, task in enumerate(ahead.build(left, self.options, self.settings, self._extra, jobs), 1):
            watch(task, f"built ahead ({number} of {len(left)})")

    def _carry_out(self, task: Task, watch: Callable[[Task, str], None]) -> ProblemResult:
        if not self.folder.is_finished(task) and task.problem is not None:
            try:
                self.folder.forget_breakdown(task)
                self._forge(task, watch)
            except WaitingForReplies:
                return result_of(self.folder, task).model_copy(update={"state": WAITING})
            except InputError as error:
                if not isinstance(error, ProblemError | RunError):
                    raise
                self._broke(task, "problem" if isinstance(error, ProblemError) else "run", error)
            except EvaluationError as error:
                self._broke(task, "evaluator", error)
            except ProviderError as error:
                self._broke(task, "model", error)
            except Exception as error:
                # a bug in kforge must cost one problem, not the whole suite
                self._broke(task, "kforge", error)
        return result_of(self.folder, task)

    def _forge(self, task: Task, watch: Callable[[Task, str], None]) -> None:
        with self._session(task, lambda stage: watch(task, stage)) as session:
            self._untouched = False
            for _ in session.attempts(lambda stage: watch(task, stage)):
                pass

    def _session(self, task: Task, watch: Callable[[str], None]) -> Session:
        judge = self._fresh_judge()
        if (run := self.folder.run_of(task)) is not None:
            return Session.resume(run, self.settings, judge, self._as_in_the_suite(task))
        assert task.problem is not None
        place = self.folder.place(task)
        return Session.begin(
            task.problem, self.options, self.settings, root=place, extra=self._extra, judge=judge, watch=watch
        )

    def _as_in_the_suite(self, task: Task) -> Consent:
        """Return the consent for an unsigned run in the suite's folder: it may use only what the suite itself names."""
        options = self.options
        return Consent(
            trust=self._trust,
            problem=task.problem,
            unsafe=options.unsafe,
            platform_dirs=tuple(self._extra),
            models=frozenset({options.model, options.analyst}),
        )

    def _fresh_judge(self) -> Judge:
        """Return the judge, ready for the next problem. Raises InputError if the platform cannot be used."""
        if self._judge is None:
            platform = usable_platform(self.options.platform, self.settings, self._extra)
            self._judge = open_judge(platform, self.settings, self.options.policy, [self.folder.path.parent])
        self._judge.freshen()
        return self._judge

    @property
    def _extra(self) -> list[Path]:
        return [Path(path) for path in self.folder.header.platform_dirs]

    def _broke(self, task: Task, kind: str, error: Exception) -> None:
        reason = " ".join(str(error).split())
        log = "".join(traceback.format_exception(error)) if kind == "kforge" else ""
        if log:
            reason = f"{type(error).__name__}: {reason}"
        self.folder.put_breakdown(task, Breakdown.model_validate({"kind": kind, "reason": reason, "log": log}))


def baselines_of(folder: SuiteFolder) -> tuple[str, ...]:
    """Return the names of the baselines with which the programs of a suite are compared."""
    return ("eager", "compile") if folder.header.options.get("compile_baseline", True) else ("eager",)


def results_of(folder: SuiteFolder) -> list[ProblemResult]:
    """Return the state of every problem of a suite."""
    return [result_of(folder, task) for task in folder.header.tasks]


def metrics_of(folder: SuiteFolder, results: Sequence[ProblemResult]) -> tuple[Metrics, dict[str, Metrics]]:
    """Return the numbers over all problems, and over each family."""
    baselines = baselines_of(folder)
    return summarize(results, baselines), by_family(results, baselines)
