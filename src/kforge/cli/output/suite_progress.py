"""Progress of a suite on standard error: one line for each problem, and on a terminal a live table of what runs.

Without a terminal, the first problem is named when it begins. Later, the problem in progress is named only if no
problem has ended for STILL_SECONDS.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol, Self

from kforge.cli.output import words
from kforge.cli.output.display import LineDisplay, Now, PlainDisplay, is_live
from kforge.cli.output.lines import Line, plain
from kforge.suite.results import BROKEN, NO_KERNEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Group

    from kforge.problems import Task
    from kforge.suite import ProblemResult
    from kforge.suite.runner import SuiteSession

STILL_SECONDS = 30.0
"""Seconds without a finished problem after which a plain line names the problem in progress."""


class SuiteProgress:
    """Prints one line per problem; a terminal also shows what runs now, the rate and the time left.

    Workers report from several threads.
    """

    def __init__(self, session: SuiteSession) -> None:
        self.session = session
        self.pace = Pace(len(session.folder.header.tasks))
        self.counts = Counts(session.baselines)
        self._is_told = False
        self._lock = threading.Lock()
        self._display: SuiteDisplay = SuiteTable(self._so_far) if is_live() else PlainSuite(self.pace)

    def stage(self, task: Task, text: str) -> None:
        with self._lock:
            self._title()
            self.pace.begin()
            self._display.tell(task.name, text)

    def result(self, result: ProblemResult) -> None:
        with self._lock:
            self._title()
            self.pace.count()
            self.counts.add(result)
            self._display.end(result.name)
            self._display.say(f"{self.pace.done}/{self.pace.total} {words.result(result)} · {self.counts}")

    def _so_far(self) -> str:
        return f"{self.pace} · {self.counts}"

    def _title(self) -> None:
        # only after the first step succeeded: bad input gets one line and no other output
        if not self._is_told:
            self._is_told = True
            folder, options = self.session.folder, self.session.options
            workload = f" ({folder.header.workload})" if folder.header.workload else ""
            about = f"{folder.header.suite}{workload} on {options.platform} with {options.model}"
            self._display.say(f"{about} → {folder.path}")

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._display.__exit__(*error)


class Counts:
    """Counts the problems that are correct, faster than each baseline, not measured, without a kernel, and broken."""

    def __init__(self, baselines: Sequence[str]) -> None:
        self._faster = {baseline: f"faster than {words.BASELINES[baseline]}" for baseline in baselines}
        self._counted = Counter[str]()

    def add(self, result: ProblemResult) -> None:
        facts = {
            "correct": result.is_correct,
            **{said: result.is_faster(baseline) for baseline, said in self._faster.items()},
            "not measured": any(each.doubt is not None for each in result.comparisons),
            "without a kernel": result.state == NO_KERNEL,
            "broken": result.state == BROKEN,
        }
        self._counted.update({said: int(holds) for said, holds in facts.items()})

    def __str__(self) -> str:
        always = ("correct", *self._faster.values())
        shown = dict.fromkeys((*always, *self._counted))
        return ", ".join(f"{self._counted[said]} {said}" for said in shown if self._counted[said] or said in always)


class Pace:
    """The pace of a suite: the problems that are done, the number that end in a minute, and the time left.

    Problems that were finished before the work began count as done, but not for the rate.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._earlier = 0
        self._began: float | None = None

    def begin(self, now: float | None = None) -> None:
        """Start the clock at the first report of a worker. `now`: the time by `time.monotonic`."""
        if self._began is None:
            self._began = time.monotonic() if now is None else now

    def count(self) -> None:
        """Count a problem that is done."""
        self.done += 1
        self._earlier += self._began is None

    def describe(self, now: float) -> str:
        """Return the pace in words, for example `12 of 137 done, 3.1 a minute, about 40 min left`."""
        said = f"{self.done} of {self.total} done"
        ended = self.done - self._earlier
        if self._began is None or not ended or now <= self._began:
            return said
        seconds = (now - self._began) / ended
        left = seconds * (self.total - self.done)
        rate = f"{60 / seconds:.1f} a minute" if seconds < 60 else f"{3600 / seconds:.1f} an hour"
        return f"{said}, {rate}, about {words.clock(left)} left"

    def __str__(self) -> str:
        return self.describe(time.monotonic())


class SuiteDisplay(Protocol):
    """Shows what the workers of a suite do."""

    def tell(self, problem: str, text: str) -> None:
        """Show a report on a problem in progress."""
        ...

    def end(self, problem: str) -> None:
        """Remove a problem that is no longer in progress."""
        ...

    def say(self, text: str) -> None: ...
    def __enter__(self) -> object: ...
    def __exit__(self, kind: object, *_: object) -> None: ...


class PlainSuite(PlainDisplay):
    """Prints lines. The first report is printed at once, so that a log is not empty while the first problem runs. After
    STILL_SECONDS of silence, a line names the problem with the latest report."""

    def __init__(self, pace: Pace) -> None:
        super().__init__("", still=STILL_SECONDS, quiet=True)
        self._pace = pace
        self._has_told = False

    def tell(self, problem: str, text: str) -> None:
        if not self._has_told:
            self._has_told = True
            self.say(f"  {self._pace.done + 1}/{self._pace.total} {problem}: {text}")
        self.stage(f"{problem}: {text}")

    def end(self, problem: str) -> None:
        """Do nothing: the next report names another problem."""


class SuiteTable(LineDisplay):
    """Shows a row for each problem in progress, and below them the results so far, the rate and the time left."""

    def __init__(self, so_far: Callable[[], str]) -> None:
        """`so_far` returns the line below the table."""
        self._so_far = so_far
        self._running: dict[str, Now] = {}
        super().__init__("")

    def tell(self, problem: str, text: str) -> None:
        if problem in self._running:
            self._running[problem].tell(text)
        else:
            self._running[problem] = Now(text)

    def end(self, problem: str) -> None:
        self._running.pop(problem, None)

    def _shown(self) -> Group:
        from rich.console import Group
        from rich.table import Table

        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for problem, now in list(self._running.items()):
            table.add_row(plain(f"  {problem}"), plain(str(now)))
        return Group(table, Line(f"  {self._so_far()}"))
