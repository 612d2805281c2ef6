"""`show`, `runs` and `platforms`: reading what is there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from kforge import platforms as registry
from kforge import settings
from kforge.cli import documents, words
from kforge.cli.forging import print_outcome
from kforge.errors import RunError
from kforge.records import as_json
from kforge.store import RunFolder, SuiteFolder, list_runs, suite_paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def show(name: str, *, json: bool) -> int:
    root = settings.load().runs
    if (suite := SuiteFolder.find(root, name)) is not None:
        from kforge.cli import suites

        return suites.show(suite, json=json)
    run = RunFolder.find(root, name)
    if json:
        documents.print_json(documents.run(run, run.outcome()))
        return 0
    print_outcome(run, run.outcome())
    for attempt in run.attempts():
        if attempt.recommendation is not None:
            print(f"recommendation of attempt {attempt.index}: {attempt.recommendation.action}")
    return 0


def runs(*, json: bool) -> int:
    from rich.console import Console
    from rich.table import Table

    chosen = settings.load()
    listing = list_runs(chosen.runs, chosen.database)
    for note in listing.notes:
        print(f"kforge: {note}", file=sys.stderr)
    if json:
        documents.print_json([as_json(run) for run in listing.runs])
        return 0
    for line in _suite_lines(chosen.runs):
        print(line)
    if not listing.runs:
        print(f"no runs in {chosen.runs}")
        return 0
    table = Table()
    table.add_column("run", no_wrap=True)  # an id that is cut short cannot be shown or resumed
    for name in ("problem", "platform", "model", "status", "attempts", "best speedup over eager"):
        table.add_column(name)
    for run in listing.runs:
        best = words.times(run.speedup) if run.speedup else "nothing correct"
        table.add_row(run.id, run.problem, run.platform, run.model, run.status, str(run.attempts), best)
    Console().print(table)
    return 0


def _suite_lines(root: Path) -> Iterator[str]:
    """A suite's runs are in its own folder: in the list they would hide the others."""
    from kforge.cli import suites

    for path in suite_paths(root):
        try:
            yield suites.line(SuiteFolder.open(path))
        except RunError as error:
            print(f"kforge: {error}", file=sys.stderr)


def platforms(platform_dirs: list[Path], *, json: bool) -> int:
    from rich.console import Console
    from rich.table import Table

    rows = [_row(found) for found in registry.available((*settings.load().platform_dirs, *platform_dirs))]
    if json:
        documents.print_json(rows)
        return 0
    table = Table()
    for name in ("platform", "language", "device", "available", "folder"):
        table.add_column(name)
    for row in rows:
        here = "yes" if row["available"] else f"no: {row['reason']}"
        table.add_row(row["name"], row.get("language", ""), row.get("device", ""), here, row["folder"])
    Console().print(table)
    return 0


def _row(found: registry.Platform | registry.BrokenPlatform) -> dict[str, Any]:
    if isinstance(found, registry.BrokenPlatform):
        return {"name": found.name, "available": False, "reason": found.reason, "folder": found.origin}
    reason = found.adapter.probe()
    row = {
        "name": found.name,
        "title": found.manifest.title,
        "language": found.manifest.language,
        "device": found.manifest.device,
        "available": reason is None,
        "folder": str(found.folder),
    }
    return row if reason is None else {**row, "reason": reason}
