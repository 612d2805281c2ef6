"""Work folders: one that is in use stays, one that was left goes, whatever its name says."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kforge import platforms
from kforge.errors import InputError
from kforge.evaluation import Judge
from kforge.evaluation.processes import work_folders

HOLDER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from kforge.evaluation.processes import work_folders
print(work_folders.make(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_of_a_living_process_stays_and_that_of_a_killed_one_goes(temporary: Path) -> None:
    """Cause: the process id in its name meant nothing in another PID namespace, and the folder was emptied."""
    command = [sys.executable, "-c", HOLDER, str(temporary)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        theirs = Path(holder.stdout.readline().strip())
        (theirs / "file").write_text("in use")
        ours = work_folders.make()
        assert (theirs / "file").exists()
        holder.kill()
        holder.wait()
    again = work_folders.make()
    assert not theirs.exists()
    assert ours.is_dir()
    for folder in (ours, again):
        work_folders.remove(folder)
    assert list(temporary.iterdir()) == []


def test_a_folder_that_cannot_be_locked_is_used_and_removed_by_nobody_else(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause: NFS has no lock for a folder that is open for reading, and no evaluation could begin there."""
    lock = fcntl.flock

    def refuse(*_: object) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", refuse)
    ours = work_folders.make()
    (ours / "file").write_text("in use")
    monkeypatch.setattr(fcntl, "flock", lock)
    work_folders.remove(work_folders.make())  # which looks for folders that were left
    assert (ours / "file").exists()
    work_folders.remove(ours)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", ["kforge-99999999999999999999-x", "kforge-work-99999999999999999999", "kforge--1-x"])
def test_a_folder_of_any_name_stops_no_evaluation(temporary: Path, name: str) -> None:
    """Cause: a number that no process id can be ended every evaluation with an OverflowError."""
    (temporary / name).mkdir()
    work_folders.remove(work_folders.make())


@pytest.mark.skipif(sys.platform != "linux", reason="open descriptors are counted in /proc")
def test_a_removed_folder_gives_its_descriptor_back() -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened()
    for _ in range(3):
        work_folders.remove(work_folders.make())
    assert opened() == before


def test_a_temporary_folder_whose_name_is_not_utf_8_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cause: the fork server was told another name, made that folder, and it stayed."""
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/t\xff"))
    odd.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(odd))
    with pytest.raises(InputError, match=r"is not UTF-8.*let TMPDIR name another folder") as refused:
        work_folders.make()
    str(refused.value).encode()
    assert list(odd.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cache = odd / "cache"
    with pytest.raises(InputError, match="let XDG_CACHE_HOME name another folder"):
        Judge(platforms.find("null"), cache=cache, environment={"PATH": os.environ["PATH"]})
    assert sorted(tmp_path.iterdir()) == [odd]
