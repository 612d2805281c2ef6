"""Builds the error for a name that no run has. It suggests the suite or run that the user may have meant."""

from __future__ import annotations

from pathlib import Path

from kforge.errors import RunError
from kforge.store.carried import shown
from kforge.store.record_files import is_file
from kforge.store.records import is_meant, short_id

SUITE_HEADER = "suite.json"
"""Name of the file by which a folder is a suite."""
ELSEWHERE = (
    "`kforge runs` lists those there; for one in another folder, give its path, or that folder by -o or KFORGE_RUNS"
)
"""What a user can do whose run or suite is not in the folder of runs."""


def no_run(root: Path, name: str) -> RunError:
    """Return the error for a name that no run under this root has. It suggests the suite of this name, or the latest
    run or suite with this text in its name."""
    suites = sorted(header.parent for header in root.glob(f"*/{SUITE_HEADER}"))
    meant = [path for path in suites if is_meant(path.name, name)]
    if is_file(Path(name) / SUITE_HEADER):
        meant = [Path(name)]
    if meant:
        return RunError(
            f"{shown(name)} is a suite, and one run is needed; the runs of its problems are in {meant[-1] / 'problems'}"
        )
    begun = [*suites, *(header.parent for header in root.glob("*/run.json"))]
    if same := [path.name for path in begun if name and f"-{name.lower()}-" in path.name]:
        latest = max(same)
        return RunError(
            f"no run {shown(name)} in {root}; the latest that has it in its name is {short_id(latest)} ({latest})"
        )
    return RunError(f"no run {shown(name)} in {root}; {ELSEWHERE}")
