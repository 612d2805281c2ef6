"""Foreign load: our own work does not count, somebody else's does."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kforge.evaluation.load import Snapshot, foreign_share

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux tells")


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_process_that_is_not_ours_is_seen_and_ours_is_not() -> None:
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    before = Snapshot.take([os.getpid()]), Snapshot.take([os.getpid(), other.pid])
    spin(0.6)
    after = Snapshot.take([os.getpid()]), Snapshot.take([os.getpid(), other.pid])
    other.kill()
    other.wait()
    difference = foreign_share(before[0], after[0]) - foreign_share(before[1], after[1])
    # it used about one processor when it got one; a machine with other work gives it less
    assert 0.2 / (os.cpu_count() or 1) < difference <= 1.1 / (os.cpu_count() or 1)


def test_what_is_not_known_is_not_claimed() -> None:
    assert Snapshot.take([2**22 + 1]) is None
    assert foreign_share(None, Snapshot.take([os.getpid()])) == 0.0
