"""Finds runs and suites for the dashboard by their exact names in a listing, so that no name acts as a path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.errors import RunError
from kforge.store import RunFolder, SuiteFolder, suite_paths
from kforge.store.carried import shown
from kforge.store.folder import run_paths
from kforge.store.lock import is_held

if TYPE_CHECKING:
    from kforge.problems import Task

LOCK = "lock"
"""Name of the lock file of a run or suite. The process that works on it holds the file locked."""


class NoSuchFolder(RunError):
    """A request names a run, suite, problem or file that is not there."""


def runs(root: Path) -> list[Path]:
    """Return the folders of all runs, the newest first."""
    return run_paths(root)[::-1]


def suites(root: Path) -> list[Path]:
    """Return the folders of all suites, the newest first."""
    return suite_paths(root)[::-1]


def run_of(root: Path, name: str) -> RunFolder:
    """Return the run of this exact name. Raises NoSuchFolder if no run has it, and RunError if the run is damaged."""
    return RunFolder.open(_listed(run_paths(root), name, "run"))


def suite_of(root: Path, name: str) -> SuiteFolder:
    """Return the suite of this exact name. Raises NoSuchFolder if no suite has it, and RunError if it is damaged."""
    return SuiteFolder.open(_listed(suite_paths(root), name, "suite"))


def task_of(suite: SuiteFolder, name: str) -> tuple[Task, RunFolder]:
    """Return a problem of a suite and its run. Raises NoSuchFolder if the suite has no such problem or it has no
    run."""
    for task in suite.header.tasks:
        if task.name == name and (run := suite.run_of(task)) is not None:
            return task, run
    raise NoSuchFolder(f"suite {suite.id} has no run of a problem {shown(name)}")


def holder(folder: Path) -> int | None:
    """Return the process that works on a run or suite; None if no process does, or if this system cannot tell.

    The lock file says its process id. It is believed only if that process really has the lock file open.
    """
    path = folder / LOCK
    try:
        if not is_held(path):
            return None
        said = path.read_bytes()[:20]
        pid = int(said) if said.isdigit() else 0
        wanted = path.stat()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if os.path.samestat(entry.stat(), wanted):
                    return pid
            except OSError:  # closed meanwhile
                continue
    except (OSError, RunError):
        return None
    return None


def mark(folder: Path) -> str:
    """Return a text that changes whenever a run's pages do: with a stage, an attempt, a question, its end or its
    process."""
    places = [folder, folder / "attempts", folder / "exchange", *sorted((folder / "attempts").glob("*"))[-2:]]
    return f"{[_changed(place) for place in places]}{_works(folder)}"


def suite_mark(folder: Path) -> str:
    """Return a text that changes whenever a suite's page does."""
    ended = sorted(str(path) for name in ("result.json", "broken.json") for path in folder.glob(f"problems/**/{name}"))
    return f"{_changed(folder)}{hash(tuple(ended))}{_works(folder)}"


def root_mark(root: Path) -> str:
    """Return a text that changes whenever the list of runs and suites does."""
    marks = [f"{path.name} {mark(path)}" for path in run_paths(root)]
    return str(hash((*marks, *(f"{path.name} {suite_mark(path)}" for path in suite_paths(root)))))


def _listed(paths: list[Path], name: str, kind: str) -> Path:
    for path in paths:
        if path.name == name:
            return path
    raise NoSuchFolder(f"there is no {kind} {shown(name)}")


def _changed(place: Path) -> int:
    try:
        return place.stat().st_mtime_ns
    except OSError:
        return 0


def _works(folder: Path) -> bool:
    try:
        return is_held(folder / LOCK)
    except RunError:
        return False
