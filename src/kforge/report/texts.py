"""Reports as Markdown, for a pull request or a wiki, and as CSV, for a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

from kforge.metrics import roofline_share
from kforge.phrases import BASELINES, NOTHING, brief, clock, finding
from kforge.report.summary import families, tiles
from kforge.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.report.views import ProblemRow, ReportView

MEANT = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")
"""Characters with a meaning in Markdown or HTML."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters by which a spreadsheet recognizes a formula."""


def markdown(view: ReportView, notes: Sequence[str] = ()) -> str:
    """Return the report as Markdown: the numbers, the families, and a line for each problem."""
    return "\n".join(_lines(view, notes)) + "\n"


def _lines(view: ReportView, notes: Sequence[str]) -> Iterator[str]:
    yield f"# {_plain(view.title)}"
    yield ""
    for source in view.sources:
        about = f"{source.name} on {source.platform} with {source.model}"
        signed = "" if source.is_signed else ", not signed by you"
        yield f"- {_plain(about)} ({source.kind} {_plain(source.id)}, {source.created[:10]}, {source.status}{signed})"
    yield ""
    yield from _table([["", "value", ""], *([tile.label, tile.value, tile.note] for tile in tiles(view))])
    for note in notes:
        yield ""
        yield _plain(note)
    if found := families(view):
        yield ""
        yield from _table(found)
    yield ""
    head = ["problem", "result", *(f"over {BASELINES[name]}" for name in view.baselines), "attempts", "time"]
    yield from _table([head, *(_cells(row, view) for row in view.problems)])


def _cells(row: ProblemRow, view: ReportView) -> list[str]:
    compared = [row.result.against(name) for name in view.baselines]
    return [
        row.name,
        row.finding if not row.result.reason or row.result.is_correct else f"{row.finding}: {row.result.reason}",
        *(brief(each).partition(" over ")[0] if each is not None else NOTHING for each in compared),
        str(row.result.attempts),
        clock(row.result.seconds),
    ]


def _table(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    for number, cells in enumerate(lines):
        yield f"| {' | '.join(map(_plain, cells))} |"
        if number == 0:
            yield f"|{' --- |' * len(cells)}"


def _plain(text: str) -> str:
    """Return foreign text escaped for one line of Markdown, so that it is shown as it is."""
    return MEANT.sub(r"\\\1", visible(text)).replace("://", ":\\//")


def table(view: ReportView) -> str:
    """Return the report as CSV: a heading, and a line for each problem."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    figures = ("speedup", "low", "high", "finding")
    compared = [f"{name}_{figure}" for name in view.baselines for figure in figures]
    writer.writerow(
        ["source", "problem", "family", "platform", "model", "state", "reason", *compared, "seconds_per_call",
         "roofline_share", "attempts", "seconds", "device_seconds", "tokens", "usd", "run"]
    )  # fmt: skip
    for row in view.problems:
        writer.writerow([_cell(each) for each in _record(row, view)])
    return written.getvalue()


def _record(row: ProblemRow, view: ReportView) -> Iterator[object]:
    result = row.result
    yield from (view.sources[row.source].id, result.name, result.family, row.platform, row.model, result.state)
    yield result.reason
    for name in view.baselines:
        each = result.against(name)
        if each is None:
            yield from ("", "", "", "")
        else:
            yield from (each.speedup.median, each.speedup.low, each.speedup.high, finding(each))
    yield result.program_seconds
    yield roofline_share(result) if result.is_correct else None
    yield from (result.attempts, result.seconds, result.device_seconds)
    yield result.usage.input_tokens + result.usage.output_tokens
    yield result.usage.cost_usd
    yield result.run


def _cell(value: object) -> object:
    """Return a value for CSV. Foreign text has no hidden characters and cannot be a formula. None becomes empty."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = visible(value)
    return f"'{text}" if text.startswith(FORMULA) else text
