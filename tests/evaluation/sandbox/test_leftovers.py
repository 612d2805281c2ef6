"""Folders that hostile programs leave: nothing in them lends rights, and none of them can be too much for us."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

import pytest

from kforge.evaluation.sandbox import leftovers

if TYPE_CHECKING:
    from pathlib import Path

DEEP = 1100
"""Levels, more than Python calls itself; each takes a slow disk milliseconds."""


def nest(folder: Path, levels: int) -> None:
    """Folders within folders, far beyond what a path may be long."""
    folder.mkdir(parents=True, exist_ok=True)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("folder", dir_fd=here)
        inner = os.open("folder", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_folder_deeper_than_a_path_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    nest(folder, DEEP)
    leftovers.remove(folder)
    assert not folder.exists()


def test_wide_closed_and_linked_folders_are_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    folder = tmp_path / "folder"
    for number in range(20):
        (folder / str(number) / "inner").mkdir(parents=True)
        (folder / str(number) / "inner" / "file").touch()
        (folder / str(number) / "link").symlink_to(kept)
        (folder / str(number) / "inner").chmod(0)
        (folder / str(number)).chmod(0)
    os.mkfifo(folder / "pipe")
    leftovers.remove(folder)
    assert not folder.exists()
    assert (kept / "file").exists()


def test_removing_what_is_not_there_or_is_no_folder_is_no_error(tmp_path: Path) -> None:
    leftovers.remove(tmp_path / "nothing")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    leftovers.remove(tmp_path / "file")
    leftovers.remove(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").exists()


def test_removal_ends_when_its_time_is_over(tmp_path: Path) -> None:
    nest(tmp_path / "deep", 3)
    leftovers.remove(tmp_path / "deep", seconds=-1.0)
    assert (tmp_path / "deep" / "folder").exists()


def test_builds_lend_no_rights(tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    (builds / "inner").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.touch()
    outside.chmod(0o4755)
    for name, given in (("shell", 0o6755), ("open", 0o666), ("honest", 0o755), ("inner/group", 0o2755)):
        (builds / name).touch()
        (builds / name).chmod(given)
    (builds / "link").symlink_to(outside)
    (builds / "inner").chmod(0o3777)
    builds.chmod(0o2777)
    leftovers.put_in_order(builds)
    assert mode(builds) == 0o700
    assert [mode(builds / name) for name in ("shell", "open", "honest", "inner", "inner/group")] == [
        0o755, 0o664, 0o755, 0o775, 0o755,
    ]  # fmt: skip
    assert mode(outside) == 0o4755


def test_a_folder_closed_to_its_owner_is_looked_into(tmp_path: Path) -> None:
    shell = tmp_path / "builds" / "inner" / "shell"
    shell.parent.mkdir(parents=True)
    shell.touch()
    shell.chmod(0o4755)
    shell.parent.chmod(0)
    leftovers.put_in_order(tmp_path / "builds")
    assert mode(shell) == 0o755


@pytest.mark.parametrize(
    ("levels", "stays"), [(leftovers.BUILD_DEPTH, True), (leftovers.BUILD_DEPTH + 1, False), (DEEP, False)]
)
def test_builds_that_are_too_deep_are_removed(tmp_path: Path, levels: int, stays: bool) -> None:
    nest(tmp_path / "builds", levels)
    leftovers.put_in_order(tmp_path / "builds")
    assert (tmp_path / "builds").exists() == stays


def test_builds_of_too_many_empty_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "BUILD_ENTRIES", 100)
    for name, count in (("much", 101), ("enough", 100)):
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / str(number)).touch()
        leftovers.put_in_order(tmp_path / name)
    assert not (tmp_path / "much").exists()
    assert (tmp_path / "enough").exists()


def test_builds_of_too_many_bytes_are_removed(tmp_path: Path) -> None:
    for name, size in (("much", leftovers.BUILD_BYTES + 1), ("enough", 1 << 20)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
        os.truncate(tmp_path / name / "file", size)
        leftovers.put_in_order(tmp_path / name)
    assert not (tmp_path / "much").exists()
    assert (tmp_path / "enough").exists()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(("levels", "stays"), [(3, True), (DEEP, False)])
def test_builds_of_another_user_are_handed_over(tmp_path: Path, levels: int, stays: bool) -> None:
    builds = tmp_path / "builds"
    nest(builds, levels)
    leftovers.hand_over(builds, 65534, 65534)
    assert builds.stat().st_uid == 65534
    assert (builds / "folder").exists() == stays
    assert all(path.lstat().st_uid == 65534 for path in builds.rglob("*"))


def test_only_folders_of_this_user_are_swept(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    leftovers.remove_if_abandoned(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
    if os.geteuid() == 0:
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 65534, 65534)
        leftovers.remove_if_abandoned(tmp_path / "theirs")
        assert (tmp_path / "theirs").exists()
