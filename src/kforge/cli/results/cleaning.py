"""`clean`: removes old runs and cached builds, after showing which.

A run or suite is removed only when it is finished, and only while its lock is held, so that no process works on it. A
symbolic link is never followed.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kforge import settings
from kforge.cli.output import documents
from kforge.cli.output.lines import note, say
from kforge.cli.trusting import ask
from kforge.errors import InputError, RunError
from kforge.store import RunFolder, SuiteFolder, suite_paths
from kforge.store.folder import run_paths
from kforge.store.lock import exclusive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUILDS = ("builds", "compilebaseline", "inline")
"""Folders of the cache whose entries are rebuilt when they are needed. Folders with learned programs (`programs`,
`smith`) and measurements (`peaks`) are kept."""
DAY = 86400.0
SHOWN = 20
"""Most runs that are listed one by one."""


@dataclass(frozen=True)
class Removable:
    """A folder or file that may be removed."""

    path: Path
    kind: Literal["run", "suite", "build"]
    days: float
    """Days since it was last changed."""
    size: int
    """Bytes."""


def clean(
    *, days: float, root: Path | None, with_runs: bool, with_cache: bool, yes: bool = False, json: bool = False
) -> int:
    """Show the runs and builds that are at least `days` days old, and remove them if the user agrees. Returns exit
    status 0, also if there are none.

    Raises InputError for a folder of runs that does not exist.
    """
    chosen = settings.load()
    where = root or chosen.runs
    if root is not None and not root.is_dir():
        raise InputError(f"-o {root}: there is no such folder")
    runs, kept = old_runs(where, days) if with_runs else ([], 0)
    builds = old_builds(chosen.cache, days) if with_cache else []
    found = [*runs, *builds]
    if not json:
        _show(runs, builds, kept, days)
    agreed = bool(found) and (yes or (not json and ask(f"remove {_amount(found)}?")))
    removed = [each for each in found if agreed and _remove(each)]
    if json:
        listed = [{"path": str(each.path), "kind": each.kind, "bytes": each.size} for each in found]
        documents.print_json({"found": listed, "removed": [str(each.path) for each in removed], "unfinished": kept})
    elif agreed:
        say(f"removed {_amount(removed)}")
    elif found:
        say("nothing was removed; --yes removes it without a question")
    return 0


def old_runs(root: Path, days: float) -> tuple[list[Removable], int]:
    """Return the finished runs and suites that are at least `days` days old, and the number of unfinished ones of that
    age. Unfinished ones are kept, because they wait for replies, run, or were interrupted."""
    found, kept = list[Removable](), 0
    folders = [(path, "run") for path in run_paths(root)] + [(path, "suite") for path in suite_paths(root)]
    for path, kind in folders:
        age = _age(path)
        if path.is_symlink() or age < days:
            continue
        if _is_finished(path, kind):
            found.append(Removable(path, "run" if kind == "run" else "suite", age, _size(path)))
        else:
            kept += 1
    return found, kept


def old_builds(cache: Path, days: float) -> list[Removable]:
    """Return the entries of the cache of builds that are at least `days` days old."""
    found = []
    for name in BUILDS:
        folder = cache / name
        if folder.is_symlink() or not folder.is_dir():
            continue
        for entry in sorted(folder.iterdir()):
            age = _age(entry)
            if not entry.is_symlink() and age >= days:
                found.append(Removable(entry, "build", age, _size(entry)))
    return found


def _is_finished(path: Path, kind: str) -> bool:
    """Return whether a run or suite is finished. One that cannot be read counts as unfinished, because a person should
    look at it."""
    with suppress(RunError, OSError):
        opened = RunFolder.open(path) if kind == "run" else SuiteFolder.open(path)
        return opened.status() == "finished"
    return False


def _remove(each: Removable) -> bool:
    """Remove a run, suite or build, and return whether it was removed. If it was not, a note says why."""
    try:
        if each.kind == "build":
            shutil.rmtree(each.path) if each.path.is_dir() else each.path.unlink(missing_ok=True)
            return True
        with exclusive(each.path / "lock", what=f"{each.kind} {each.path.name}"):
            if not _is_finished(each.path, each.kind):  # it was resumed since it was listed
                note(f"{each.path} is kept: it is not finished any more")
                return False
            shutil.rmtree(each.path)
    except (RunError, OSError) as error:
        note(f"{each.path} is kept: {error}")
        return False
    return True


def _show(runs: list[Removable], builds: list[Removable], kept: int, days: float) -> None:
    if not runs and not builds:
        say(f"nothing to remove is older than {days:g} days")
    for each in runs[:SHOWN]:
        say(f"{each.kind} {each.path.name}: {each.days:.0f} days old, {_bytes(each.size)}")
    if len(runs) > SHOWN:
        say(f"and {len(runs) - SHOWN} more")
    if builds:
        say(f"{len(builds)} cached builds: {_bytes(sum(each.size for each in builds))}")
    if kept:
        say(f"{kept} older run{'s' * (kept > 1)} kept, which wait for replies, run, or were interrupted")


def _amount(found: list[Removable]) -> str:
    runs = sum(each.kind != "build" for each in found)
    builds = len(found) - runs
    parts = [f"{count} {name}{'s' * (count != 1)}" for count, name in ((runs, "run"), (builds, "build")) if count]
    return f"{' and '.join(parts) or 'nothing'} ({_bytes(sum(each.size for each in found))})"


def _bytes(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def _age(path: Path) -> float:
    """Return the days since a folder, or anything directly in it, was last changed; 0 if that cannot be read."""
    try:
        changed = [path.lstat().st_mtime, *(each.lstat().st_mtime for each in _entries(path) if each.name != "lock")]
    except OSError:
        return 0.0
    return max(0.0, (time.time() - max(changed)) / DAY)


def _entries(path: Path) -> Iterator[Path]:
    return path.iterdir() if path.is_dir() and not path.is_symlink() else iter(())


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.lstat().st_size
    return total
