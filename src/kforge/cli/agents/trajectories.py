"""`trajectories`: writes the attempts of finished runs for training."""

from __future__ import annotations

import json as encoding
from typing import TYPE_CHECKING

from kforge import durable, settings
from kforge.cli.output import documents
from kforge.cli.output.lines import note
from kforge.errors import InputError, RunError
from kforge.service.trajectories import trajectory
from kforge.store import RunFolder, find_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def write(names: list[str], to: Path | None, *, root: Path | None, json: bool) -> int:
    """Write one line for each attempt. A run of a suite that is not finished is left out, with a note.

    Raises InputError for an unknown run, and RunError for a named run that is not finished or damaged.
    """
    if json and to is None:
        raise InputError("--json needs --to FILE: without --to, the trajectories themselves go to standard output")
    where = root or settings.load().runs
    runs = [run for name in names for run in _runs(where, name)]
    lines = [encoding.dumps(each, allow_nan=False) + "\n" for run in runs for each in trajectory(run)]
    if to is None:
        documents.print_lines(lines)
    else:
        durable.write(to.absolute(), "".join(lines))
    if json:
        documents.print_json({"file": str(to), "runs": len(runs), "attempts": len(lines)})
    return 0


def _runs(root: Path, name: str) -> Iterator[RunFolder]:
    """Yield the run of this name, or the finished runs of the suite of this name. Print a note for each run of the
    suite that is left out."""
    folder = find_folder(root, name)
    if isinstance(folder, RunFolder):
        yield folder
        return
    for task in folder.header.tasks:
        try:
            run = folder.run_of(task)
            if run is not None and run.outcome() is not None:
                yield run
                continue
            note(f"{task.name} is not finished, and was left out")
        except RunError as error:
            note(str(error))
