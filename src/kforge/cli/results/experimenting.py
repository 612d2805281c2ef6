"""`experiment`: runs the arms of an experiment, and prints which differences are real."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from kforge import settings
from kforge.cli import INTERRUPTED, WAITING
from kforge.cli.output import documents
from kforge.cli.output.lines import note, plain, say, say_table
from kforge.cli.output.suite_progress import SuiteProgress
from kforge.experiment import ExperimentSession, compare, read_experiment
from kforge.metrics import MEASURES, NO_DIFFERENCE
from kforge.metrics import WAITING as WAITS
from kforge.phrases import NOT_MEASURED, NOTHING, baselines_in_words
from kforge.records import as_json
from kforge.visible import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.table import Table

    from kforge.cli.options import Target
    from kforge.experiment import ArmReport, Comparisons, Experiment
    from kforge.metrics import Cost, PairedTest, ProblemResult


def experiment(path: Path, target: Target, *, model: str, only: str, root: Path | None, json: bool) -> int:
    """Run the experiment of a file. Raises InputError for a bad file, platform or model, before anything begins."""
    chosen = settings.load()
    read = read_experiment(path, chosen, platform=target.platform, model=model, only=only, extra=target.folders)
    session = ExperimentSession(read, chosen, root=root or chosen.runs, extra=target.folders)
    try:
        results = _work(session)
    except KeyboardInterrupt:
        note("interrupted; give the same command again to go on")
        return INTERRUPTED
    outcome = compare(read, results)
    waits = any(result.state == WAITS for each in results.values() for result in each)
    if json:
        documents.print_json(document(session, outcome, results) | {"status": "waiting" if waits else "finished"})
    else:
        _print(session, outcome)
    if waits:
        note(f"some problems wait for replies: {command('kforge', 'exchange', 'list', session.folder)}")
        note("then give the same command again")
        return WAITING
    return 0


def _work(session: ExperimentSession) -> dict[str, list[ProblemResult]]:
    """Return the results of each arm, of all repetitions together."""
    arms = [arm.name for arm in session.experiment.arms]
    results: dict[str, list[ProblemResult]] = {name: [] for name in arms}
    for arm, suite in session.suites():
        note(f"arm {arms.index(arm.name) + 1} of {len(arms)}: {arm.name}")
        with SuiteProgress(suite) as progress, closing(suite.work(progress.stage)) as working:
            for result in working:
                progress.result(result)
        results[arm.name] += suite.results
    return results


def document(
    session: ExperimentSession, outcome: Comparisons, results: dict[str, list[ProblemResult]]
) -> dict[str, Any]:
    """Return the document that `--json` prints."""
    experiment = session.experiment
    told = as_json(outcome)
    for arm in told["arms"]:
        arm["problems"] = {result.name: result.state for result in results[arm["name"]]}
    for comparison, about in zip(outcome.comparisons, told["comparisons"], strict=True):
        for test, said in zip(comparison.tests, about["tests"], strict=True):
            said["finding"] = test.finding
    return {
        "experiment": experiment.file.name,
        "question": experiment.file.question,
        "folder": str(session.folder),
        "suite": experiment.suite,
        "platform": experiment.arms[0].options.platform,
        "baselines": list(experiment.baselines),
        **told,
    }


# --- printing -------------------------------------------------------------------------------------------------


def _print(session: ExperimentSession, outcome: Comparisons) -> None:
    experiment = session.experiment
    say(experiment.file.question)
    say_table(table(experiment, outcome.arms))
    for line in lines(experiment, outcome):
        say(line)
    say(f"experiment: {session.folder}")


def table(experiment: Experiment, arms: Sequence[ArmReport]) -> Table:
    """Return a row for each arm. A problem that is not proven faster counts as 1.00x in the mean."""
    from rich.table import Table

    title = f"{experiment.file.name}: {experiment.suite} on {experiment.arms[0].options.platform}"
    made = Table(title=plain(title, "table.title"), title_justify="left")
    made.add_column("arm", no_wrap=True)
    for name in ("correct", "faster", "slower", "cannot tell", NOT_MEASURED, "geometric mean"):
        made.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
    for arm in arms:
        made.add_row(plain(arm.name), *_cells(arm, len(experiment.baselines)))
    return made


def _cells(arm: ArmReport, baselines: int) -> list[str]:
    metrics = arm.metrics
    if not metrics.done:
        return ["0 of 0", *[NOTHING] * 5]
    gain = metrics.over_fastest if baselines > 1 else next(iter(metrics.gains.values()))
    assert gain is not None
    # on two lines, so that the table fits into 80 columns
    mean = f"{arm.mean.value:.2f}x\n({arm.mean.low:.2f} to {arm.mean.high:.2f})" if arm.mean else NOT_MEASURED
    correct = f"{round(metrics.correct * metrics.done)} of {metrics.done}"
    counts = [str(each) for each in (gain.faster, gain.slower, gain.cannot_tell, gain.unknown)]
    return [correct, *counts, mean]


def lines(experiment: Experiment, outcome: Comparisons) -> Iterator[str]:
    """Yield what each arm cost, and its comparison with the first one, a line for each measure."""
    for arm in outcome.arms:
        yield f"{arm.name}: {spent(arm.cost)}"
    yield f"speedups are over {baselines_in_words(experiment.baselines)}; what is not proven faster counts as 1.00x"
    if outcome.comparisons:
        yield (
            f"each against {outcome.arms[0].name}, problem by problem; 95 % intervals by bootstrap, p by a paired "
            f"permutation test, adjusted for {outcome.tests} test{'s' * (outcome.tests != 1)} by Holm's method:"
        )
    for comparison in outcome.comparisons:
        for test in comparison.tests:
            yield f"{comparison.other}: {told(test)}"


def spent(cost: Cost) -> str:
    """Return the cost of an arm in words, with the device-seconds per solved problem if they are known."""
    usd = "price not known" if cost.usd is None else f"${cost.usd:,.2f}"
    more = f" and {cost.unpriced} calls without a price" if cost.usd is not None and cost.unpriced else ""
    each = cost.device_seconds_per_solved
    solved = f", {each:,.0f} device-seconds for each of {cost.solved} solved problems" if each is not None else ""
    return f"{cost.tokens:,} tokens, {usd}{more}, {cost.device_seconds:,.0f} device-seconds{solved}"


def told(test: PairedTest) -> str:
    """Return one test in words: the two values, their difference with its interval, p, and the finding."""
    measure = MEASURES[test.measure]
    apart = f", {test.unknown} unknown" if test.unknown else ""
    if test.difference is None or test.base is None or test.other is None:
        return f"{measure.label}: no problem was measured in both arms{apart}: {NO_DIFFERENCE}"
    low, high = test.difference.low, test.difference.high
    match measure.scale:
        case "ratio":
            values = (
                f"{test.base:.2f}x → {test.other:.2f}x, ratio {test.difference.value:.2f} ({low:.2f} to {high:.2f})"
            )
        case "share":
            points = f"{100 * test.difference.value:+.0f} points ({100 * low:+.0f} to {100 * high:+.0f})"
            values = f"{test.base:.0%} → {test.other:.0%}, {points}"
        case _:
            values = (
                f"{test.base:,.1f} → {test.other:,.1f}, {test.difference.value:+,.1f} ({low:+,.1f} to {high:+,.1f})"
            )
    return f"{measure.label} {values}, {test.pairs} pairs{apart}, p = {test.adjusted:.3g}: {_finding(test)}"


def _finding(test: PairedTest) -> str:
    """Return the finding. If too few pairs differ for any finding, it also says how many are needed."""
    if test.finding == NO_DIFFERENCE and test.differ < test.needed:
        counts = f"{test.differ} of {test.pairs} pairs differ"
        return f"{NO_DIFFERENCE} ({counts}, and fewer than {test.needed} can show nothing)"
    return test.finding
