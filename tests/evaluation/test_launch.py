"""Processes of ours: none of them is there when the one that started it is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kforge.evaluation import launch

ORPHAN = """
import os, sys, time
from kforge.evaluation import launch
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.001)
open(sys.argv[1], "w").close()
launch.confine(parent)
open(sys.argv[2], "w").close()
"""


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
    assert str(Path(launch.__file__).parents[2]) in launch.import_path().split(os.pathsep)
