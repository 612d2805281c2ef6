"""`compare`: shows two runs side by side, and whether a difference in speed was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kforge import settings
from kforge.cli.output import documents, words
from kforge.cli.output.diffs import say_diff, unified
from kforge.cli.output.display import open_progress
from kforge.cli.output.lines import plain, say, say_table
from kforge.cli.trusting import hold_to_own, say_whose, whose
from kforge.errors import InputError
from kforge.phrases import NOTHING
from kforge.records import Usage, as_json
from kforge.session import open_judge, usable_platform
from kforge.store import RunFolder, short_id

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from kforge.records import Candidate, HeadToHead
    from kforge.settings import Settings

NOT_HEAD_TO_HEAD = (
    "not measured head to head: the speedups were measured at different times, so a difference may be the machine's"
)


def compare(
    names: tuple[str, str], *, root: Path | None, measure: bool = False, trust: bool = False, json: bool = False
) -> int:
    """Show two runs side by side. With `measure`, time their best programs against each other.

    Raises RunError for an unknown run, and InputError if `measure` is asked for and the programs cannot be timed
    together.
    """
    chosen = settings.load()
    runs = [RunFolder.find(root or chosen.runs, name) for name in names]
    is_ours = all(run.is_all_signed(chosen.signing_key) for run in runs)
    measured = _measured(runs, chosen, trust=trust) if measure else None
    standing = _standing(runs, measured)
    first, second = (_program(run) for run in runs)
    difference = ""
    if first is not None and second is not None:
        difference = unified(first.source, second.source, (short_id(runs[0].id), short_id(runs[1].id)))
    if json:
        head_to_head = {"head_to_head": as_json(measured)} if measured is not None else {}
        shown = [documents.run(run, run.outcome()) for run in runs]
        ends = {"speed": standing, **head_to_head, "diff": difference, **whose(is_ours=is_ours)}
        documents.print_json({"runs": shown, **ends})
        return 0
    say_table(_table(runs))
    say(standing)
    say_whose(is_ours=is_ours)
    if difference:
        say_diff(difference)
    elif first is not None and second is not None:
        say("the best programs are the same")
    return 0


def _program(run: RunFolder) -> Candidate | None:
    best = run.best()
    return best.candidate if best is not None else None


def _standing(runs: list[RunFolder], measured: HeadToHead | None) -> str:
    """Return one sentence: which program is faster if that was measured, and otherwise that it was not."""
    first, second = (_program(run) for run in runs)
    if first is None or second is None:
        missing = [short_id(run.id) for run, program in zip(runs, (first, second), strict=True) if program is None]
        return f"no difference in speed can be told: no correct program in {' and '.join(missing)}"
    if measured is not None:
        return f"measured head to head: {short_id(runs[1].id)} beside {short_id(runs[0].id)} is {measured.in_words}"
    if runs[0].header.problem.digest != runs[1].header.problem.digest:
        return "not measured head to head: the problems differ"
    if first == second:
        return "no difference in speed: the best programs are the same"
    return NOT_HEAD_TO_HEAD


def _measured(runs: list[RunFolder], chosen: Settings, *, trust: bool) -> HeadToHead:
    for run in runs:
        hold_to_own(run, chosen.signing_key, trust=trust)
    first, second = (_program(run) for run in runs)
    if first is None or second is None:
        raise InputError("--measure needs a correct program in both runs")
    one, other = runs[0].header, runs[1].header
    if (one.problem.digest, one.platform) != (other.problem.digest, other.platform):
        raise InputError("--measure needs two runs of the same problem on the same platform")
    if first == second:
        raise InputError("--measure: the best programs of both runs are the same")
    platform = usable_platform(one.platform, chosen)
    with (
        open_judge(platform, chosen) as judge,
        open_progress(f"{one.problem.name} on {platform.name}: timing the two programs") as display,
    ):
        judge.on_stage = display.stage
        for candidate in (first, second):  # a program is timed only after this session has found it correct
            if judge.evaluate(one.problem, candidate).correct is None:
                raise InputError("one of the programs is not correct any more; `kforge verify` says more")
        return judge.head_to_head(one.problem, second, first)


def _table(runs: list[RunFolder]) -> Table:
    from rich.table import Table

    columns = [_facts(run) for run in runs]
    table = Table(expand=False)
    table.add_column("")
    for run in runs:
        table.add_column(short_id(run.id))
    for name in columns[0]:
        table.add_row(name, *(plain(column[name]) for column in columns))
    return table


def _facts(run: RunFolder) -> dict[str, Any]:
    """Return the facts of a run that are compared, in words. Every run has the same keys."""
    best, reported, outcome = run.best(), run.reported(), run.outcome()
    correct = reported.correct if reported is not None else None
    timing = correct.timing if correct is not None else None
    usage = sum((attempt.usage for attempt in run.attempts()), Usage())
    over: dict[str, str] = {
        each.baseline: words.brief(each) for each in (correct.comparisons if correct is not None else ())
    }
    return {
        "problem": run.header.problem.name,
        "platform": run.header.platform,
        "model": run.header.model,
        "state": f"{run.status()}, {outcome.stopped}" if outcome is not None else run.status(),
        "attempts": str(len(run.attempts())),
        "best": f"attempt {best.index}" if best is not None else "nothing correct",
        "a call": words.duration(timing.seconds.median) if timing is not None else "not timed",
        **{f"over {name}": over.get(key, NOTHING) for key, name in words.BASELINES.items()},
        "cost": words.cost(usage) if usage.requests else "no model calls",
        "time": words.clock(outcome.seconds) if outcome is not None else "not finished",
    }
