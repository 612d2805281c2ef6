"""`transfer`: forges the problem of a run for other platforms, with and without the program of that run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kforge import settings
from kforge.cli import NOT_FOUND
from kforge.cli import WAITING as WAITING_STATUS
from kforge.cli.output import documents, words
from kforge.cli.output.display import open_progress
from kforge.cli.output.lines import note, plain, say, say_table
from kforge.cli.output.suite_progress import STILL_SECONDS
from kforge.cli.trusting import consent
from kforge.errors import InputError
from kforge.phrases import NOTHING
from kforge.records import EvaluationPolicy, as_json
from kforge.run_options import choose_model, new_options, options_of
from kforge.store import RunFolder
from kforge.suite.results import CORRECT, WAITING
from kforge.transfer import Carried, Source, Transfer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.table import Table

    from kforge.cli.options import Growth, Permission
    from kforge.run_options import RunOptions
    from kforge.settings import Settings


def transfer(
    name: str, to: str, growth: Growth, allowed: Permission, *, compare: bool, root: Path | None, json: bool
) -> int:
    chosen = settings.load()
    root = root or chosen.runs
    targets = list(dict.fromkeys(target.strip() for target in to.split(",") if target.strip()))
    if not targets:
        raise InputError("--to names no platform; `kforge platforms` lists them")
    run = RunFolder.find(root, name)
    run.admit(chosen.signing_key, consent(run.header.problem, allowed))
    run.hold_to(chosen.signing_key)
    source = Source.of(run)
    work = Transfer(source, _options(run, growth, chosen), chosen, root=root, extra=tuple(allowed.platform_dirs or ()))
    found: list[Carried] = []
    with open_progress(still=STILL_SECONDS) as progress:
        progress.say(f"{source.problem.name} from {source.platform} to {', '.join(targets)} → {root}")
        for target in targets:
            for each in work.to(target, compare=compare, watch=lambda stage: progress.stage(f"{target}: {stage}")):  # noqa: B023
                found.append(each)
                progress.say(_line(each))
    if json:
        documents.print_json(_document(source, found))
    else:
        say_table(_table(source, found))
        _say_reasons(found)
    return _status(found)


def _options(run: RunFolder, growth: Growth, chosen: Settings) -> RunOptions:
    """Return the options of the new runs: the user's present options, and the evaluation rules of the earlier run
    except `unsafe`."""
    stored = {key: value for key, value in run.header.options.items() if key in EvaluationPolicy.model_fields}
    policy = options_of({**stored, "platform": "", "model": "", "analyst": ""}, str(run.path)).policy.model_copy(
        update={"unsafe": False}
    )
    model = choose_model(growth.model, chosen)
    return new_options(**{**asdict(growth), "model": model}, **policy.model_dump(), platform="")


def _line(each: Carried) -> str:
    way = "with the reference" if each.with_reference else "without it"
    return f"{each.platform} {way}: {words.result(each.result)}"


def _status(found: Sequence[Carried]) -> int:
    if any(each.result.state == WAITING for each in found):
        note("some runs wait for replies; answer them, and then give the same command again")
        return WAITING_STATUS
    return 0 if all(each.result.is_correct for each in found if each.with_reference) else NOT_FOUND


def _table(source: Source, found: Sequence[Carried]) -> Table:
    from rich.table import Table

    title = f"{source.problem.name}, from {source.platform}"
    table = Table(title=plain(title, "table.title"), title_justify="left")
    table.add_column("platform", no_wrap=True)
    for way in ("with the reference", "without"):
        table.add_column(way)
        table.add_column("passes", justify="right")
    for platform in dict.fromkeys(each.platform for each in found):
        ways = {each.with_reference: each for each in found if each.platform == platform}
        cells = [cell for way in (True, False) for cell in _cells(ways.get(way))]
        table.add_row(plain(platform), *map(plain, cells))
    return table


def _cells(each: Carried | None) -> tuple[str, str]:
    if each is None:
        return NOTHING, NOTHING
    state = each.result.state.replace("_", " ")
    if each.result.state == CORRECT and each.result.comparisons:
        state = f"{state}, {words.brief(each.result.comparisons[0])}"
    return state, NOTHING if each.passes is None else str(each.passes)


def _say_reasons(found: Sequence[Carried]) -> None:
    reasons = ((each.platform, each.result.reason) for each in found if each.result.reason is not None)
    for platform, reason in dict.fromkeys(reasons):  # often the same with the reference and without it
        say(f"{platform}: {reason}")


def _document(source: Source, found: Sequence[Carried]) -> dict[str, Any]:
    return {"problem": source.problem.name, "from": source.platform, "results": [as_json(each) for each in found]}
