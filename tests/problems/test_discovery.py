"""Which files of a directory are problems."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kforge.errors import ProblemError
from kforge.problems import discover

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_file_is_itself(write: Callable[..., Path]) -> None:
    assert discover(write()) == [write()]


def test_a_directory_in_natural_order(write: Callable[..., Path], tmp_path: Path) -> None:
    names = ["level1/2_b.py", "level1/10_a.py", "level2/1_x.py", "level10/1_y.py"]
    paths = [write(name=name) for name in names]
    assert discover(tmp_path) == paths


def test_what_is_no_problem_is_skipped(write: Callable[..., Path], tmp_path: Path) -> None:
    real = write(name="a/problem.py")
    write("x = 1\n", "a/library.py")
    write("def (\n", "a/broken.py")
    write(name="a/notes.txt")
    write(name=".hidden/problem.py")
    write(name="a/.hidden.py")
    write(name="a/__pycache__/problem.py")
    (tmp_path / "a/latin.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "a/folder.py").mkdir()
    (tmp_path / "a/dangling.py").symlink_to("nowhere.py")
    (tmp_path / "a/loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "a/pipe.py")
    assert discover(tmp_path) == [real]


def test_nothing_found(write: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="no such file or directory"):
        discover(tmp_path / "absent")
    with pytest.raises(ProblemError, match=r"no problem files here .*get_init_inputs\)$"):
        discover(tmp_path)
    write("def (\n", "broken.py")
    with pytest.raises(ProblemError, match=r"skipped 1 unreadable, the first being .*broken.py: .* line 1"):
        discover(tmp_path)
