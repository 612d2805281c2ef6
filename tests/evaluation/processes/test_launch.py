"""Processes of ours: none of them is there when the one that started it is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kforge.evaluation.constants import KEPT_LOG
from kforge.evaluation.processes import launch

ORPHAN = """
import os, sys, time
from kforge.evaluation.processes import launch
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.001)
open(sys.argv[1], "w").close()
launch.confine(parent)
open(sys.argv[2], "w").close()
"""


@pytest.mark.parametrize(("size", "kept"), [(KEPT_LOG + 5, KEPT_LOG), (KEPT_LOG, KEPT_LOG), (7, 7)])
def test_of_a_log_the_end_is_kept(tmp_path: Path, size: int, kept: int) -> None:
    """Cause: each worker's log, of up to 2 GiB, stayed until the referee ended."""
    log = tmp_path / "worker.log"
    content = b"x" * (size - 5) + b"last!"
    log.write_bytes(content)
    launch.shorten(log)
    assert log.read_bytes() == content[-kept:]


def test_a_log_that_is_not_there_is_not_shortened(tmp_path: Path) -> None:
    launch.shorten(tmp_path / "none.log")
    assert not (tmp_path / "none.log").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process asks to end with another")
def test_who_is_an_orphan_before_it_can_ask_to_end_with_its_parent_ends(tmp_path: Path) -> None:
    begun, alive = tmp_path / "begun", tmp_path / "alive"
    # capturing waits for the pipe's last holder, which is the orphan
    subprocess.run([sys.executable, "-c", ORPHAN, str(begun), str(alive)], capture_output=True, check=True)
    end = time.monotonic() + 10.0
    while not begun.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert begun.exists()
    assert not alive.exists()


def test_a_user_without_a_home_has_an_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321987)  # nobody whom this machine knows
    with pytest.raises(RuntimeError):
        Path.home()
    assert str(Path(launch.__file__).parents[3]) in launch.import_path().split(os.pathsep)
