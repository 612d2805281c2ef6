"""Works through a suite, with one or several workers. A problem that fails does not stop the others.

Finished problems are not repeated, so a suite that was killed is continued by running it again. A problem that failed
for another reason than its programs (a provider that was down, an evaluator that crashed) is then tried again.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from kforge.errors import InputError
from kforge.metrics import Metrics, by_family, summarize
from kforge.run_options import RunOptions, options_of
from kforge.session import usable_platform
from kforge.store import Consent, SuiteFolder, SuiteHeader
from kforge.suite import ahead
from kforge.suite.crew import Crew
from kforge.suite.results import BROKEN, result_of
from kforge.suite.worker import SuiteOrders

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from kforge.problems import Task
    from kforge.settings import Settings
    from kforge.suite.results import ProblemResult


class TaskSource(Protocol):
    """Where the problems of a suite come from: a `Suite`, or an arm of an experiment."""

    @property
    def name(self) -> str: ...

    def tasks(self, workload: str = "", only: str = "") -> list[Task]: ...


class SuiteSession:
    """A suite that is worked on: its folder, its options, and the results so far."""

    def __init__(self, folder: SuiteFolder, settings: Settings, consent: Consent | None = None) -> None:
        """`consent` is what the user allows if others began the suite. Raises RunError if a permission is missing."""
        self._trust = consent is not None and consent.trust
        folder.admit(settings.signing_key, consent or Consent())
        if not self._trust:
            folder.hold_to(settings.signing_key)
        self.folder = folder
        self.settings = settings
        self.options = options_of(folder.header.options, str(folder.path))
        self._found: dict[str, ProblemResult] = {}
        """The results so far, by the names of the problems."""
        self._is_new = False
        """Whether this session created the folder."""

    @classmethod
    def begin(
        cls,
        suite: TaskSource,
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
        session._trust = False  # the folder is new, so it holds no run that needs trust
        folder.hold_to(settings.signing_key)
        session._is_new = True
        return session

    @property
    def baselines(self) -> tuple[str, ...]:
        return baselines_of(self.folder)

    def work(
        self, watch: Callable[[Task, str], None] = lambda *_: None, builders: int = 0, workers: int = 1
    ) -> Generator[ProblemResult, None, None]:
        """Finish every problem. Yields the result of each: first of those that were finished before, then of the others
        as they end.

        `builders` is the number of processes that build programs before anything is timed. `workers` is the number of
        problems that are worked on at once. `watch` gets progress reports, from several threads.

        Raises InputError for an error that would stop every problem (a model or platform that cannot be used), and
        RunError if another process works on the suite.
        """
        orders = SuiteOrders(self.folder, self.options, self.settings, trust=self._trust, workers=workers)
        try:
            with self.folder.writing():
                if builders:
                    self._build(builders, watch)
                left: list[Task] = []
                for task in self.folder.header.tasks:
                    result = result_of(self.folder, task)
                    if result.is_done and result.state != BROKEN:
                        yield self._noted(result)
                    else:
                        left.append(task)
                with closing(Crew(orders, watch)) as crew:
                    for result in crew.carry_out(left):
                        yield self._noted(result)
        except InputError:
            if self._is_new and not orders.has_begun:
                self.folder.discard()
            raise

    def _noted(self, result: ProblemResult) -> ProblemResult:
        self._found[result.name] = result
        return result

    @property
    def results(self) -> list[ProblemResult]:
        """The results so far, in the order of the suite's problems."""
        found = self._found
        return [found[task.name] for task in self.folder.header.tasks if task.name in found]

    def _build(self, jobs: int, watch: Callable[[Task, str], None]) -> None:
        extra = [Path(path) for path in self.folder.header.platform_dirs]
        usable_platform(self.options.platform, self.settings, extra)
        left = [task for task in self.folder.header.tasks if not self.folder.is_finished(task)]
        for number, task in enumerate(ahead.build(left, self.options, self.settings, extra, jobs), 1):
            watch(task, f"built ahead ({number} of {len(left)})")


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
