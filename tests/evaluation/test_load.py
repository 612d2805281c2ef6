"""Foreign load: our own work does not count, somebody else's does."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kforge.evaluation.load import Snapshot, foreign_share

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux tells")


OTHER = "import time\nwhile time.process_time() < 1: pass\nprint('done', flush=True)\ntime.sleep(60)"
"""Uses a second of processor time, however long a busy machine makes it wait for that."""


def test_a_process_that_is_not_ours_is_seen_and_ours_is_not() -> None:
    with subprocess.Popen([sys.executable, "-c", OTHER], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        start = time.monotonic()
        before = Snapshot.take([os.getpid()]), Snapshot.take([os.getpid(), other.pid])
        while not select.select([other.stdout], [], [], 0)[0]:
            pass
        after = Snapshot.take([os.getpid()]), Snapshot.take([os.getpid(), other.pid])
        elapsed = time.monotonic() - start
        other.kill()
    difference = foreign_share(before[0], after[0]) - foreign_share(before[1], after[1])
    # half a second for what others did between two snapshots that should be one
    assert 0.5 < difference * elapsed * (os.cpu_count() or 1) < 1.5


def test_what_is_not_known_is_not_claimed() -> None:
    assert Snapshot.take([2**22 + 1]) is None
    assert foreign_share(None, Snapshot.take([os.getpid()])) == 0.0
