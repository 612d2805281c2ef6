"""`report`: writes what happened in runs and suites into one file, or prints its summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge import settings
from kforge.cli.output import documents
from kforge.cli.output.lines import note, say
from kforge.errors import InputError
from kforge.report.rows import read_report
from kforge.report.summary import tiles
from kforge.report.writing import write_figures, write_report
from kforge.store import find_folder

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.report.views import ReportView
    from kforge.report.writing import Stories


@dataclass(frozen=True)
class ReportRequest:
    """The options of `report`: what is reported, and into which files."""

    names: tuple[str, ...]
    """Runs and suites; empty for the latest."""
    output: Path | None
    figures: Path | None
    stories: Stories
    title: str


def report(request: ReportRequest, *, root: Path | None, json: bool) -> int:
    """Write a report, or print its summary. Raises RunError if there is no such run, and InputError if the folder of
    runs does not exist or the output file has an unknown suffix."""
    chosen = settings.load()
    if root is not None and not root.is_dir():
        raise InputError(f"--runs {root}: there is no such folder")
    root, key = root or chosen.runs, chosen.signing_key
    names = request.names or (_latest(root),)
    view = read_report([find_folder(root, name) for name in names], key, request.title)
    written = dict[str, str]()
    if request.output is not None:
        for remark in write_report(view, request.output, request.stories, key):
            note(remark)
        written["report"] = str(request.output)
    if request.figures is not None:
        paths, left_out = write_figures(view, request.figures)
        written |= {path.stem: str(path) for path in paths}
        for remark in left_out:
            note(remark)
    if json:
        documents.print_json(
            {"title": view.title, "problems": len(view.problems), "files": written, "summary": _numbers(view)}
        )
        return 0
    if not written:
        _say_summary(view)
    for name in written.values():
        say(f"written: {name}")
    return 0


def _latest(root: Path) -> str:
    from kforge.cli.inspecting import latest  # the import takes 0.3 s, and is rarely needed

    return latest(root)


def _numbers(view: ReportView) -> dict[str, str]:
    return {tile.label: tile.value for tile in tiles(view)}


def _say_summary(view: ReportView) -> None:
    say(view.title)
    found = list(tiles(view))
    width = max(len(tile.label) for tile in found)
    for tile in found:
        say(f"  {tile.label:{width}}  {tile.value}{f'  ({tile.note})' if tile.note else ''}")
    say("to see all of it: kforge report -o report.html")
