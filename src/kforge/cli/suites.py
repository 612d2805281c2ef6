"""`suite`: runs a suite to its end; also resumes and shows suites for `resume` and `show`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from kforge import settings
from kforge.cli import INTERRUPTED, NOT_FOUND, WAITING
from kforge.cli.output import documents, words, workloads
from kforge.cli.output.lines import note, plain, say, say_table
from kforge.cli.output.suite_progress import SuiteProgress
from kforge.cli.trusting import consent, say_whose, whose
from kforge.errors import InputError
from kforge.phrases import NOT_MEASURED, NOTHING, baselines_in_words
from kforge.records import as_json
from kforge.store import SuiteFolder
from kforge.store.naming import ELSEWHERE
from kforge.suite.results import BROKEN
from kforge.suite.results import WAITING as WAITS
from kforge.suite.runner import SuiteSession, baselines_of, metrics_of, results_of
from kforge.visible import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.table import Table

    from kforge.cli.options import CrewSize, Permission, Selection
    from kforge.metrics import Gain
    from kforge.problems import Task
    from kforge.run_options import RunOptions
    from kforge.settings import Settings
    from kforge.store import Key
    from kforge.suite import Metrics, ProblemResult


def begin(
    selection: Selection,
    options: RunOptions,
    chosen: Settings,
    *,
    platform_dirs: list[Path],
    root: Path | None,
    crew: CrewSize,
    json: bool,
) -> int:
    suite = selection.open()
    session = SuiteSession.begin(
        suite, options, chosen, root=root or chosen.runs, workload=selection.workload, only=selection.only,
        extra=platform_dirs,
    )  # fmt: skip
    for remark in suite.remarks:
        note(remark)
    return work(session, crew=crew, json=json)


def resume(name: str, allowed: Permission, *, root: Path | None = None, crew: CrewSize, json: bool) -> int:
    """Resume a suite, and return the exit status. `allowed` is what a suite made by others may do. Raises InputError if
    there is no such suite."""
    chosen = settings.load()
    root = root or chosen.runs
    folder = SuiteFolder.find(root, name)
    if folder is None:
        raise InputError(f"no suite '{name}' in {root}; {ELSEWHERE}")
    is_ours = folder.is_signed(chosen.signing_key)
    return work(SuiteSession(folder, chosen, consent(None, allowed)), crew=crew, json=json, is_ours=is_ours)


def work(session: SuiteSession, *, crew: CrewSize, json: bool, is_ours: bool = True) -> int:
    """Work on a suite to its end, and return the exit status. `is_ours` says whether the user began it."""
    try:
        with (
            SuiteProgress(session) as progress,
            closing(session.work(progress.stage, crew.builders, crew.workers)) as results,
        ):
            for result in results:
                progress.result(result)
    except KeyboardInterrupt:
        note(f"interrupted; to go on: {command('kforge', 'resume', session.folder.path)}")
        return INTERRUPTED
    if json:
        documents.print_json(document(session.folder, session.results) | whose(is_ours=is_ours))
    else:
        print_metrics(session.folder, session.results)
        say_whose(is_ours=is_ours)
    if any(result.state == WAITS for result in session.results):
        note(f"some problems wait for replies: {command('kforge', 'exchange', 'list', session.folder.path)}")
        note(f"then: {command('kforge', 'resume', session.folder.path)}")
        return WAITING
    return 0 if all(result.is_correct for result in session.results) else NOT_FOUND


# --- showing ----------------------------------------------------------------------------------------------


def show(folder: SuiteFolder, key: Key, *, json: bool) -> int:
    """Print a suite. `key` is the user's: in a suite that the user signed, only runs that the user signed count."""
    is_ours = folder.hold_to(key)
    results = results_of(folder)
    if json:
        documents.print_json(document(folder, results) | whose(is_ours=is_ours))
        return 0
    for result in results:
        for line in words.result_lines(result):
            say(line)
    print_metrics(folder, results)
    say_whose(is_ours=is_ours)
    return 0


def print_metrics(folder: SuiteFolder, results: Sequence[ProblemResult]) -> None:
    overall, families = metrics_of(folder, results)
    title = f"{folder.header.suite} on {folder.header.options.get('platform', '?')}"
    say_table(table(title, overall, families, baselines_of(folder)))
    for line in _notes(overall, baselines_of(folder)):
        say(line)
    tasks, baselines = folder.header.tasks, baselines_of(folder)
    for line in workloads.lines(workloads.gains(tasks, results, baselines), baselines):
        say(line)
    say("states: " + ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in overall.states.items()))
    for result in results:
        if result.state == BROKEN:
            say(f"broken: {result.name}: {result.reason}")
    for line in workloads.notes(tasks):
        say(line)
    say(f"suite: {folder.path}")


def _notes(overall: Metrics, baselines: Sequence[str]) -> Iterator[str]:
    """Yield notes on what the table does not show."""
    if any(gain.share is not None and gain.share < 1 for gain in overall.gains.values()):
        yield "in a geometric mean, a problem that is not proven faster counts as 1.00x"
    if (gain := overall.over_fastest) is not None:
        yield f"proven faster than {baselines_in_words(baselines)}, geometric mean: {_cell(gain)}"
    gains = {words.BASELINES[name]: gain for name, gain in overall.gains.items()}
    for why, counts in (
        ("because the timing is in doubt", {name: gain.not_measured for name, gain in gains.items()}),
        (
            "because the baseline did not run, or the program was emulated",
            {name: gain.not_compared for name, gain in gains.items()},
        ),
    ):
        if counted := ", ".join(f"{count} of {overall.done} over {name}" for name, count in counts.items() if count):
            yield f"not measured, {why}: {counted}; shares and means leave them out"


def table(title: str, overall: Metrics, families: dict[str, Metrics], baselines: Sequence[str]) -> Table:
    """Return a table with one row for each family and one for all problems. It fits into 80 columns."""
    from rich.table import Table

    table = Table(title=plain(title, "table.title"), title_justify="left")
    table.add_column("family", no_wrap=True)
    gains = (f"proven faster than {words.BASELINES[each]}, geometric mean" for each in baselines)
    for name in ("problems", "correct", *gains):
        table.add_column(name, justify="right")
    for name, metrics in families.items():
        table.add_row(plain(name or "(none)"), *_cells(metrics, baselines))
    table.add_section()
    table.add_row("all", *_cells(overall, baselines))
    return table


def _cells(metrics: Metrics, baselines: Sequence[str]) -> list[str]:
    counted = str(metrics.done) if metrics.done == metrics.problems else f"{metrics.done} of {metrics.problems}"
    if not metrics.done:
        return [counted, *[NOTHING] * (1 + len(baselines))]
    return [counted, f"{metrics.correct:.0%}", *(_cell(metrics.gains[each]) for each in baselines)]


def _cell(gain: Gain) -> str:
    """Return the text of a cell, such as `77%, 1.91x`. If some problems were not measured, it has the number of
    measured ones: `77% of 12, 1.91x`."""
    if gain.share is None:
        return NOT_MEASURED
    of = f" of {gain.measured}" if gain.unknown else ""
    return f"{gain.share:.0%}{of}, {gain.geometric_mean:.2f}x"


def document(folder: SuiteFolder, results: Sequence[ProblemResult]) -> dict[str, Any]:
    """Return the document that `--json` prints."""
    header = folder.header
    overall, families = metrics_of(folder, results)
    weighted = workloads.gains(header.tasks, results, baselines_of(folder))
    about = {"run": str(folder.path), "suite": header.suite, "status": folder.status()}
    if header.workload:
        about["workload"] = header.workload
    return {
        **about,
        "platform": header.options.get("platform", "?"),
        "model": header.options.get("model", "?"),
        "problems": [_problem(folder, task, result) for task, result in zip(header.tasks, results, strict=True)],
        **({"weighted": [as_json(each) for each in weighted]} if weighted else {}),
        "metrics": {"all": as_json(overall), "families": {name: as_json(each) for name, each in families.items()}},
    }


def _problem(folder: SuiteFolder, task: Task, result: ProblemResult) -> dict[str, Any]:
    about: dict[str, Any] = as_json(result) | workloads.about(task)
    for name in ("comparisons", "steps", "usage", "roofline"):  # the documents of runs hold them
        about.pop(name, None)
    if result.is_correct and (run := folder.run_of(task)) is not None:
        about["best"] = documents.run(run, run.outcome())["best"]
    return about
