"""Reads runs and suites into the rows of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.phrases import attempt_detail
from kforge.report.views import AttemptRow, ProblemRow, ReportView, SourceView
from kforge.store import RunFolder, SuiteFolder
from kforge.suite.results import NO_KERNEL, result_of, result_of_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kforge.records import Attempt
    from kforge.store import Key

BASELINES = ("eager", "compile")
"""The baselines in the order in which a report shows them."""


def read_report(folders: Sequence[RunFolder | SuiteFolder], key: Key, title: str = "") -> ReportView:
    """Return the report of these runs and suites, in their order.

    `key` is the user's: in a run or suite that the user signed, only parts that the user signed count. `title` is made
    from the names of the runs and suites if it is empty. Raises RunError if a run that was named is damaged; a damaged
    run inside a suite is a problem of the state `broken`.
    """
    sources, problems = list[SourceView](), list[ProblemRow]()
    for position, folder in enumerate(folders):
        if isinstance(folder, SuiteFolder):
            sources.append(_suite_source(folder, is_signed=folder.hold_to(key)))
            problems += suite_rows(folder, position, first=len(problems))
        else:
            sources.append(_run_source(folder, is_signed=folder.hold_to(key) and folder.is_all_signed(key)))
            problems.append(run_row(folder, position, key=f"p{len(problems)}"))
    compared = {each.baseline for problem in problems for each in problem.result.comparisons}
    baselines = tuple(name for name in BASELINES if name in compared)
    return ReportView(title or _title(sources), tuple(sources), tuple(problems), baselines or BASELINES[:1])


def suite_rows(folder: SuiteFolder, source: int = 0, first: int = 0) -> Iterator[ProblemRow]:
    """Yield the problems of a suite in its order. `source` is the suite's position in the report, and `first` the
    number of problems before it."""
    platform, model = _names(folder.header.options)
    for number, task in enumerate(folder.header.tasks, first):
        yield ProblemRow(f"p{number}", source, platform, model, result_of(folder, task))


def run_row(run: RunFolder, source: int = 0, key: str = "p0") -> ProblemRow:
    """Return the problem of one run. `source` and `key` are its place in the report. Raises RunError if the run is
    damaged."""
    header = run.header
    return ProblemRow(key, source, header.platform, header.model, result_of_run(header.problem.name, "", run))


def attempt_row(attempt: Attempt) -> AttemptRow:
    """Return the row of one attempt."""
    unchanged = attempt.is_correct and attempt.unchanged is not None
    return AttemptRow(
        index=attempt.index,
        phase=attempt.phase,
        state=NO_KERNEL if unchanged else attempt.verdict.state,
        said=attempt_detail(attempt),
        parent=attempt.parent,
        comparisons=attempt.comparisons,
        seconds=attempt.seconds,
        elapsed=attempt.elapsed,
        usage=attempt.usage,
        head_to_head=attempt.head_to_head,
    )


def _run_source(run: RunFolder, *, is_signed: bool) -> SourceView:
    header = run.header
    return SourceView(
        "run", run.id, header.problem.name, header.platform, header.model, header.created, run.status(), str(run.path),
        is_signed=is_signed,
    )  # fmt: skip


def _suite_source(folder: SuiteFolder, *, is_signed: bool) -> SourceView:
    header = folder.header
    platform, model = _names(header.options)
    return SourceView(
        "suite", folder.id, header.suite, platform, model, header.created, folder.status(), str(folder.path),
        header.workload, is_signed,
    )  # fmt: skip


def _names(options: Mapping[str, object]) -> tuple[str, str]:
    return str(options.get("platform", "?")), str(options.get("model", "?"))


def _title(sources: Sequence[SourceView]) -> str:
    names = list(dict.fromkeys(source.name for source in sources))
    places = list(dict.fromkeys(source.platform for source in sources))
    if len(names) > 3:
        names = [f"{len(sources)} runs and suites"]
    return f"{', '.join(names)} on {', '.join(places)}"
