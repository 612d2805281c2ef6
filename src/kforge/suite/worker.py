"""Works on the problems of a suite, one after the other. A problem that fails does not stop the others."""

from __future__ import annotations

import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.errors import EvaluationError, InputError, ProblemError, ProviderError, RunError, WaitingForReplies
from kforge.session import Session, open_judge, usable_platform
from kforge.store import Breakdown, Consent, SuiteFolder
from kforge.suite.results import WAITING, result_of
from kforge.suite.shared_judge import SharedJudge

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation import Judge
    from kforge.loop import Turns
    from kforge.problems import Task
    from kforge.run_options import RunOptions
    from kforge.settings import Settings
    from kforge.suite.results import ProblemResult
    from kforge.suite.turns import WorkerTurns


class SuiteOrders:
    """The folder, the options and the settings that all workers of a suite share."""

    def __init__(
        self, folder: SuiteFolder, options: RunOptions, settings: Settings, *, trust: bool, workers: int
    ) -> None:
        """`trust`: whether the user trusts runs in the folder that others made. `workers`: number of workers."""
        self.folder = folder
        self.options = options
        self.settings = settings
        self.trust = trust
        self.workers = workers
        self.has_begun = False
        """Whether a run has begun in the folder."""

    @property
    def platform_dirs(self) -> list[Path]:
        return [Path(path) for path in self.folder.header.platform_dirs]

    def judge(self, turns: Turns) -> Judge:
        """Open a judge that shares the machine. Raises InputError if the platform cannot be used."""
        platform = usable_platform(self.options.platform, self.settings, self.platform_dirs)
        kind = partial(SharedJudge, turns=turns, builds_first=self.workers > 1)
        return open_judge(platform, self.settings, self.options.policy, [self.folder.path.parent], kind)

    def options_for(self, task: Task) -> RunOptions:
        """Return the options of the run of a problem: those of the suite, with the problem's reference
        implementation."""
        return self.options.model_copy(update={"reference": task.reference}) if task.reference else self.options

    def consent(self, task: Task) -> Consent:
        """Return the consent for an unsigned run in the suite's folder: it may use only what the suite itself names."""
        return Consent(
            trust=self.trust,
            problem=task.problem,
            unsafe=self.options.unsafe,
            platform_dirs=tuple(self.platform_dirs),
            models=frozenset({self.options.model, self.options.analyst}),
        )


class SuiteWorker:
    """Works on one problem at a time, with one judge for all of them, because starting a judge takes seconds."""

    def __init__(self, orders: SuiteOrders, turns: WorkerTurns) -> None:
        """`turns`: lets this worker have the machine alone (to time) or together with other workers (to build)."""
        self._orders = orders
        self._turns = turns
        self._judge: Judge | None = None
        self._is_stopped = False

    def carry_out(self, task: Task, watch: Callable[[Task, str], None]) -> ProblemResult:
        """Finish a problem, unless it is finished, and return its result.

        Raises InputError for an error that would stop every problem: a model or platform that cannot be used.
        """
        folder = self._orders.folder
        if not folder.is_finished(task) and task.problem is not None:
            try:
                folder.forget_breakdown(task)
                self._forge(task, lambda stage: watch(task, stage))
            except WaitingForReplies:
                return result_of(folder, task).model_copy(update={"state": WAITING})
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
        return result_of(folder, task)

    def stop(self) -> None:
        """Abort the present request to the judge. Another thread may call this."""
        self._is_stopped = True
        if (judge := self._judge) is not None:
            judge.interrupt()

    def close(self) -> None:
        if self._judge is not None:
            self._judge.close()

    def _forge(self, task: Task, watch: Callable[[str], None]) -> None:
        with self._session(task, watch) as session:
            self._orders.has_begun = True
            session.turns = self._turns
            for _ in session.attempts(watch):
                pass

    def _session(self, task: Task, watch: Callable[[str], None]) -> Session:
        orders, judge = self._orders, self._fresh_judge()
        self._turns.begin_problem()  # the session's clock begins now as well
        if (run := orders.folder.run_of(task)) is not None:
            return Session.resume(run, orders.settings, judge, orders.consent(task))
        assert task.problem is not None
        return Session.begin(
            task.problem,
            orders.options_for(task),
            orders.settings,
            root=orders.folder.place(task),
            extra=orders.platform_dirs,
            judge=judge,
            watch=watch,
        )

    def _fresh_judge(self) -> Judge:
        """Return the judge, ready for the next problem. Raises InputError if the platform cannot be used."""
        if self._judge is None:
            self._judge = self._orders.judge(self._turns)
        self._judge.freshen()
        return self._judge

    def _broke(self, task: Task, kind: str, error: Exception) -> None:
        if self._is_stopped:
            return  # the worker was stopped in the middle: the problem is not broken, and goes on later
        reason = " ".join(str(error).split())
        log = "".join(traceback.format_exception(error)) if kind == "kforge" else ""
        if log:
            reason = f"{type(error).__name__}: {reason}"
        self._orders.folder.put_breakdown(task, Breakdown.model_validate({"kind": kind, "reason": reason, "log": log}))
