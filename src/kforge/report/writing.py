"""Writes a report into a file, whose suffix decides its format, and its figures into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kforge import durable
from kforge.errors import InputError, RunError
from kforge.report.figures import figures_of
from kforge.report.page import render_page
from kforge.report.stories import read_story
from kforge.report.texts import markdown, table
from kforge.store import RunFolder

if TYPE_CHECKING:
    from kforge.report.views import ReportView, Story
    from kforge.store import Key

Stories = Literal["auto", "all", "best", "none"]
KINDS = (".html", ".md", ".csv")
"""Endings of the files that a report can be written into."""
WHOLE = 200
"""Most attempts of a report that holds every story whole, unless all are asked for. More would make a file that opens
slowly: an attempt with its prompts takes about 10 kB."""
SHORT = 300
"""Most problems of a report that holds the best program of each, unless more are asked for."""


def write_report(view: ReportView, path: Path, stories: Stories, key: Key) -> tuple[str, ...]:
    """Write a report, and return what its reader must know, a sentence each.

    `stories` says what a page holds of each problem: everything, the best program, or nothing; `auto` decides by the
    number of attempts. Raises InputError for another kind of file, and RunError if it cannot be written.
    """
    if path.suffix not in KINDS:
        raise InputError(f"-o {path}: a report is written into a file that ends in {', '.join(KINDS)}")
    notes = list[str]()
    if path.suffix == ".csv":
        text = table(view)
    elif path.suffix == ".md":
        text = markdown(view)
    else:
        told = _read_stories(view, _chosen(view, stories, notes), key, notes)
        text = render_page(view, told, tuple(notes))
    durable.write(path, text)
    return tuple(notes)


def write_figures(view: ReportView, folder: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Write the figures into a folder as SVG files for papers. Return their paths, and a sentence for each reason why
    others are left out. Raises RunError if one cannot be written."""
    durable.make_folder(folder)
    figures, written = figures_of(view), list[Path]()
    for figure in figures.drawn:
        written.append(folder / f"{figure.name}.svg")
        durable.write(written[-1], figure.for_paper())
    return written, figures.left_out


def _chosen(view: ReportView, stories: Stories, notes: list[str]) -> Stories:
    attempts = sum(result.attempts for result in view.results)
    if stories != "auto":
        return stories
    if attempts <= WHOLE:
        return "all"
    ask = "`kforge report --stories all` writes all of them, and `kforge serve` shows each one when it is opened."
    if len(view.problems) <= SHORT:
        notes.append(
            f"This file holds only the best program of each problem, because there are {attempts} attempts. {ask}"
        )
        return "best"
    notes.append(f"This file holds no programs and prompts, because there are {attempts} attempts. {ask}")
    return "none"


def _read_stories(view: ReportView, stories: Stories, key: Key, notes: list[str]) -> dict[str, Story]:
    told: dict[str, Story] = {}
    if stories == "none":
        return told
    for row in view.problems:
        if not row.result.run:
            continue
        try:
            run = RunFolder.open(Path(row.result.run))
            run.hold_to(key)
            told[row.key] = read_story(run, row, whole=stories == "all")
        except RunError as error:
            notes.append(f"The story of {row.name} is left out: {error}")
    return told
