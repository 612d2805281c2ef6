"""`kforge clean`: what it shows, what it removes, and what it never removes."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from kforge.cli.results import cleaning
from kforge.store.lock import exclusive

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Forged
    from tests.conftest import RunKforge


def aged(path: Path, days: float) -> None:
    then = time.time() - days * cleaning.DAY
    for each in (path, *path.rglob("*")):
        os.utime(each, (then, then), follow_symlinks=False)


@pytest.fixture
def runs(forged: Forged, tmp_path: Path) -> Path:
    """Four runs: an old one, an old one that was interrupted, a new one, and an old one behind a link."""
    root = tmp_path / "runs"
    for name in ("old", "interrupted", "new"):
        shutil.copytree(forged.folder, root / name)
    (root / "interrupted" / "result.json").unlink()
    shutil.copytree(forged.folder, tmp_path / "elsewhere")
    for folder in (root / "old", root / "interrupted", tmp_path / "elsewhere"):
        aged(folder, 40)
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    return root


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_nothing_is_removed_without_a_word(kforge_in_process: RunKforge, runs: Path) -> None:
    ran = kforge_in_process("clean", "-o", runs, "--no-cache")
    assert ran.status == 0
    assert "run old: 40 days old" in ran.stdout
    assert "1 older run kept, which wait for replies, run, or were interrupted" in ran.stdout
    assert "nothing was removed" in ran.stdout
    assert left(runs) == ["interrupted", "linked", "new", "old"]


def test_old_finished_runs_are_removed_and_no_others(kforge_in_process: RunKforge, runs: Path) -> None:
    ran = kforge_in_process("clean", "-o", runs, "--no-cache", "--yes")
    assert "removed 1 run (" in ran.stdout
    assert left(runs) == ["interrupted", "linked", "new"]
    assert (runs / "linked" / "run.json").is_file()
    assert "nothing to remove is older than 30 days" in kforge_in_process("clean", "-o", runs, "--no-cache").stdout


def test_a_run_that_somebody_works_on_is_kept(kforge_in_process: RunKforge, runs: Path) -> None:
    with exclusive(runs / "old" / "lock", what="the test"):
        ran = kforge_in_process("clean", "-o", runs, "--no-cache", "--yes")
    assert "is kept" in ran.stderr
    assert "old" in left(runs)


def test_json_says_what_was_found_and_removed(kforge_in_process: RunKforge, runs: Path) -> None:
    shown = json.loads(kforge_in_process("clean", "-o", runs, "--no-cache", "--json").stdout)
    assert [(each["path"], each["kind"]) for each in shown["found"]] == [(str(runs / "old"), "run")]
    assert (shown["removed"], shown["unfinished"]) == ([], 1)
    gone = json.loads(kforge_in_process("clean", "-o", runs, "--no-cache", "--json", "--yes").stdout)
    assert gone["removed"] == [str(runs / "old")]


def test_old_builds_are_removed_and_what_was_learned_is_kept(kforge_in_process: RunKforge, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "kforge"
    for name in ("builds/one", "builds/two", "programs/one", "peaks"):
        (cache / name).mkdir(parents=True)
        (cache / name / "file").write_bytes(b"x" * 1000)
    (cache / "inline").mkdir()
    (cache / "inline" / "kernel.so").write_bytes(b"x")
    aged(cache, 40)
    aged(cache / "builds" / "two", 1)
    ran = kforge_in_process("clean", "--no-runs", "--yes", environment={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert "removed 2 builds (" in ran.stdout
    assert left(cache / "builds") == ["two"]
    assert left(cache / "inline") == []
    assert (cache / "programs" / "one" / "file").exists()
    assert (cache / "peaks" / "file").exists()


def test_a_folder_that_is_not_there_is_one_line(kforge_in_process: RunKforge, tmp_path: Path) -> None:
    ran = kforge_in_process("clean", "-o", tmp_path / "none")
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
