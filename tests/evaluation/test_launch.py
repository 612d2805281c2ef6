"""Processes of ours: none of them is there when the one that started it is not."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

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
