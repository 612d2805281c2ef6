"""Process trees that flee: whatever a program starts ends with it."""

from __future__ import annotations

import os
import secrets
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.evaluation.kernel_layers import skip_if_missing

from kforge.evaluation.processes import launch
from kforge.evaluation.sandbox import LADDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.evaluation.sandbox.conftest import Inside

    from kforge.evaluation.processes.worker_start import Workers
    from kforge.evaluation.worker_client.client import WorkerClient

FLEE = """
import os, signal, subprocess, time

def flee(depth):
    if os.fork():
        return
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if os.fork():
        os._exit(0)
    if depth:
        flee(depth - 1)
    os.execvp("sleep", ["sleep", MARK])

awaited, held = os.pipe()  # closed by each exec
for depth in range(3):
    flee(depth)
os.close(held)
os.read(awaited, 1)  # returns when all of them sleep: a worker that is held still would stop a tree that still grows
subprocess.Popen(["sh", "-c", f"setsid sleep {MARK} & sleep {MARK}"], start_new_session=True)
"""
SLEEPERS = 6


@pytest.mark.parametrize("trees", [10, pytest.param(60, marks=pytest.mark.volume)])
def test_no_process_of_many_trees_survives(
    trees: int,
    workers: Workers,
    client: Callable[[], WorkerClient],
    running: Callable[[str], int],
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    mark = f"{3000 + secrets.randbits(8)}.{secrets.randbits(40)}"
    seconds = []
    for _ in range(trees):
        worker = client()
        worker.load(f"MARK = {mark!r}\n" + FLEE, "candidate.py", "flee")
        assert running(mark) >= SLEEPERS
        start = time.perf_counter()
        worker.close()
        seconds.append(time.perf_counter() - start)
        assert running(mark) == 0
    p99 = round(statistics.quantiles(seconds, n=100)[-1] * 1e3, 1)
    record_testsuite_property(f"p99 of a kill in ms, {workers.sandbox.partition(':')[0]}", p99)


def test_what_a_program_leaves_behind_when_it_exits_is_gone_too(inside: Inside, running: Callable[[str], int]) -> None:
    mark = f"4000.{secrets.randbits(40)}"
    assert "status 7" in inside(f"MARK = {mark!r}\n" + FLEE + "time.sleep(0.2); os._exit(7)")
    assert running(mark) == 0


def test_a_fork_bomb_is_contained_and_ends(
    workers: Workers, client: Callable[[], WorkerClient], running: Callable[[str], int], inside: Inside
) -> None:
    if "nothing limits those of root" in workers.sandbox:
        pytest.skip("this layer cannot limit root's processes, and a fork bomb would hit the whole machine")
    limited = inside("""
resource.setrlimit(resource.RLIMIT_NPROC, (40, 40))
forked = 0
try:
    for _ in range(200):
        if os.fork() == 0: time.sleep(30); os._exit(0)
        forked += 1
except OSError as error:
    say(f"{errno.errorcode[error.errno]} after {forked}")
""")
    assert limited.startswith("EAGAIN after ")
    assert int(limited.rpartition(" ")[2]) < 60
    mark = f"bomb{secrets.randbits(40)}"
    worker = client()
    bomb = f"import subprocess, time; subprocess.Popen(['sh', '-c', 'b() {{ b | b & }}; b # {mark}']); time.sleep(0.3)"
    worker.load(bomb, "candidate.py", "time")
    worker.close()
    assert running(mark) == 0


@pytest.mark.parametrize("layer", LADDER)
def test_a_killed_referee_takes_its_workers_along(tmp_path: Path, running: Callable[[str], int], layer: str) -> None:
    mark = f"5000.{secrets.randbits(40)}"
    code = f"""
import os, sys, time
from pathlib import Path
from kforge import platforms
from kforge.evaluation.transport import wire
from kforge.evaluation.worker_client.client import WorkerClient
from kforge.evaluation.processes import launch
from kforge.evaluation.processes.worker_start import Workers
from kforge.evaluation.worker_client.output_access import HostAccess
folder = platforms.find("null").folder
environment = launch.common_environment(tool_path=os.environ["PATH"], threads=1, extra={{}})
workers = Workers(work=Path({str(tmp_path)!r}), environment=environment,
                  platform=folder, device_nodes=(), ladder=({layer!r},))
builds = Path({str(tmp_path)!r}) / "builds"
worker = WorkerClient(workers.take(builds), wire.Begin(str(folder), str(builds), "strict"), output_bytes=0,
                      call_deadline=9, access=HostAccess(platforms.find("null").adapter))
worker.load({f"MARK = {mark!r}" + chr(10) + FLEE!r}, "candidate.py", "flee")
print("fled", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as referee:
        assert referee.stdout is not None
        assert referee.stderr is not None
        said = referee.stdout.readline()
        if not said:
            referee.wait()
            error = referee.stderr.read().decode()
            skip_if_missing(layer)
            pytest.fail(error)
        assert running(mark) > 0
        os.kill(referee.pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while running(mark) and time.monotonic() < end:
        time.sleep(0.02)
    assert running(mark) == 0


BETWEEN = """
import os, signal
from kforge.evaluation.sandbox import cells, syscalls
syscalls.unshare = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
cells._enter_user_namespace(as_nobody=True)
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root's workers are somebody else")
def test_who_would_have_given_another_identity_does_not_wait_for_a_dead_nursery(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": launch.import_path()}
    died = subprocess.run([sys.executable, "-c", BETWEEN], cwd=tmp_path, env=environment, check=False).returncode
    assert died == -signal.SIGKILL
    end = time.monotonic() + 20.0
    while (left := at_home_in(tmp_path)) and time.monotonic() < end:
        time.sleep(0.01)
    assert left == []


def at_home_in(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            if (process / "cwd").readlink() == folder:
                found.append(process.name)
    return found
