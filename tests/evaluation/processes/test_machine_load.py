"""Foreign load: our own work does not count, somebody else's does."""

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kforge.evaluation.constants import LOAD_WINDOW
from kforge.evaluation.processes.machine_load import (
    Helpers,
    LoadMeter,
    LoadSnapshot,
    foreign_share,
    own_seconds,
    shares_between,
)
from kforge.platforms import host

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux tells")


OTHER = "import time\nwhile time.process_time() < 1: pass\nprint('done', flush=True)\ntime.sleep(60)"
"""Uses a second of processor time, however long a busy machine makes it wait for that."""


def test_a_process_that_is_not_ours_is_seen_and_ours_is_not() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as idle,
        subprocess.Popen([sys.executable, "-c", OTHER], stdout=subprocess.PIPE) as other,
    ):
        assert other.stdout is not None
        start = time.monotonic()
        before = LoadSnapshot.take([idle.pid]), LoadSnapshot.take([idle.pid, other.pid])
        other.stdout.readline()
        after = LoadSnapshot.take([idle.pid]), LoadSnapshot.take([idle.pid, other.pid])
        elapsed = time.monotonic() - start
        other.kill()
        idle.kill()
    difference = foreign_share(before[0], after[0]) - foreign_share(before[1], after[1])
    # half a second for what others did between two snapshots that should be one
    assert 0.5 < difference * elapsed * host.threads() < 1.5


def test_what_is_not_known_is_not_claimed() -> None:
    assert LoadSnapshot.take([2**22 + 1]) is None
    assert foreign_share(None, LoadSnapshot.take([os.getpid()])) == 0.0


PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {OTHER!r}], stdout=subprocess.PIPE)
print(child.stdout.readline(), flush=True)
time.sleep(60)
"""


def test_what_our_processes_start_is_a_load_and_is_counted_with_its_parent_where_that_is_asked() -> None:
    """A helper that a program leaves behind must not burn the machine unseen while the baseline is timed."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        before, used = LoadSnapshot.take([other.pid]), Helpers.take(other.pid)
        other.stdout.readline()
        after = LoadSnapshot.take([other.pid])
        assert before is not None
        assert after is not None
        assert after.ours - before.ours < 0.5, "its child has used a second"
        assert Helpers.take(other.pid).of_living(used) >= 0.9
        other.kill()


def test_processor_time_of_children_counts_when_they_are_reaped_and_when_they_are_not() -> None:
    code = """
import os, time
for reaped in (True, False):
    child = os.fork()
    if child == 0:
        while time.process_time() < 0.3: pass
        os._exit(0)
    if reaped: os.waitpid(child, 0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print("done", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert Helpers.take(process.pid).of_all(Helpers({}, 0.0)) > 0.5
        process.kill()


def test_processor_time_of_a_crowd_is_looked_up_for_a_bounded_time() -> None:
    code = """
import os, time
for _ in range(300):
    if os.fork() == 0: os._exit(0)
print("done", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        begun = time.process_time()
        found = Helpers.take(process.pid, deadline=0.0)
        assert time.process_time() - begun < 0.1
        assert found.of_all(found) == math.inf, "what was not seen may have worked"
        process.kill()


def test_only_pairs_next_to_a_load_are_called_busy() -> None:
    """One processor is used by others during the first ten of thirty pairs, each of which takes a tenth of a second."""
    marks = [LoadSnapshot(busy=min(number, 10) / 10, ours=0.0, at=number / 10) for number in range(31)]
    shares = [share * host.threads() for share in shares_between(marks)]
    assert len(shares) == 30
    assert shares[: 10 - LOAD_WINDOW] == pytest.approx([1.0] * (10 - LOAD_WINDOW))
    assert shares[10 + LOAD_WINDOW :] == pytest.approx([0.0] * (20 - LOAD_WINDOW))
    assert 0.0 < shares[10] < 1.0


def test_a_meter_that_is_blinded_counts_as_busy() -> None:
    assert shares_between([LoadSnapshot(0.0, 0.0, 0.0), None, None]) == [1.0, 1.0]
    assert shares_between([None, None]) == [0.0], "where the kernel never tells, there is nothing to blind"


def test_where_the_kernel_tells_nothing_no_pair_is_busy() -> None:
    meter = LoadMeter([2**22 + 1])
    meter.mark()
    assert meter.shares() == [0.0]
    assert meter.overall == 0.0


def test_the_clock_of_one_process_is_its_own() -> None:
    with subprocess.Popen([sys.executable, "-c", OTHER], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        spent = own_seconds(other.pid)
        other.kill()
    assert spent is not None
    assert 1.0 <= spent < 2.0
    assert own_seconds(other.pid) is None, "it is gone"


def test_what_a_program_s_processes_worked_is_told_by_each_and_by_those_that_ended() -> None:
    before = Helpers({10: 2.0, 11: 5.0}, ended=1.0)
    later = Helpers({10: 2.5, 11: 5.0, 12: 0.25}, ended=1.0)
    assert later.of_living(before) == later.of_all(before) == pytest.approx(0.75)
    # one that ended has worked five seconds before, which are not of this time
    assert Helpers({10: 2.0}, ended=6.25).of_all(before) == pytest.approx(0.25)
    # one that nobody waited for takes its seconds with it
    assert Helpers({10: 2.0}, ended=1.0).of_all(before) == 0.0


def test_what_ended_processes_have_worked_is_no_credit() -> None:
    """Cause: a child worked before an order, became a zombie, and was credited to the order in which it was reaped."""
    code = """
import os, sys, time
child = os.fork()
if child == 0:
    while time.process_time() < 0.3: pass
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print("a zombie", flush=True)
sys.stdin.readline()
os.waitpid(child, 0)
print("reaped", flush=True)
sys.stdin.readline()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        nothing = Helpers({}, 0.0)
        process.stdout.readline()
        before = Helpers.take(process.pid)
        print("go", file=process.stdin, flush=True)
        process.stdout.readline()
        after = Helpers.take(process.pid)
        assert after.of_living(before) == 0.0
        assert after.of_all(nothing) > 0.25
        assert before.of_all(nothing) > 0.25, "a zombie's work is known before it is reaped"
        assert after.of_all(before) < 0.05, "and is not of the time in which it is"
