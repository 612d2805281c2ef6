"""Held processes really stand still, their children and daemons with them."""

import inspect
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kforge.evaluation import launch, stillness

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not list the children of a process")

COUNT = """
import mmap, os, sys, threading, time
memory = mmap.mmap(int(sys.argv[1]), 4096)

def count(at):
    while True:
        memory[at : at + 4] = ((int.from_bytes(memory[at : at + 4], "little") + 1) % 2**32).to_bytes(4, "little")
        time.sleep(0.0005)

threading.Thread(target=count, args=(4,), daemon=True).start()
if os.fork() == 0:
    count(8)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        count(12)
    os._exit(0)
count(0)
"""
COUNTERS = 4
"""The main thread, another thread, a child, and a daemon in a session of its own."""


@pytest.fixture
def counting() -> Iterator[tuple[int, Callable[[], list[int]]]]:
    """A process tree in which everybody counts: its root, and a look at the counters."""
    descriptor = os.memfd_create("counters", 0)
    os.ftruncate(descriptor, 4096)
    memory = mmap.mmap(descriptor, 4096)
    root = subprocess.Popen(
        [sys.executable, "-c", COUNT, str(descriptor)],
        pass_fds=(descriptor,),
        start_new_session=True,
        preexec_fn=partial(launch.confine, os.getpid()),
    )

    def look() -> list[int]:
        return [int.from_bytes(memory[at : at + 4], "little") for at in range(0, 4 * COUNTERS, 4)]

    try:
        _until(lambda: all(look()))
        yield root.pid, look
    finally:
        for pid in (*stillness.descendants(root.pid), root.pid):
            os.kill(pid, signal.SIGKILL)
        root.wait()
        os.close(descriptor)


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.001)


def test_nothing_in_a_held_tree_moves_and_everything_goes_on(counting: tuple[int, Callable[[], list[int]]]) -> None:
    pid, look = counting
    held = stillness.hold(pid)
    before = look()
    time.sleep(0.05)
    assert look() == before
    stillness.release(pid, held)
    _until(lambda: all(now > then for now, then in zip(look(), before, strict=True)))


def test_a_daemon_stays_among_the_descendants(counting: tuple[int, Callable[[], list[int]]]) -> None:
    pid, _ = counting
    sessions = {os.getsid(child) for child in stillness.descendants(pid)}
    assert len(sessions - {pid}) == 1


def test_a_process_that_is_gone_is_at_rest() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert stillness.hold(gone.pid) == []
    stillness.release(gone.pid, [])
    assert stillness.descendants(gone.pid) == []


def test_a_killed_worker_takes_its_daemon_with_it(tmp_path: Path) -> None:
    script = tmp_path / "daemon_maker.py"
    script.write_text(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        open('daemon', 'w').write(str(os.getpid()))\n"
        "        time.sleep(60)\n"
        "    os._exit(0)\n"
        "time.sleep(60)\n"
    )
    environment = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    process = launch.start("daemon_maker", work=tmp_path, environment=environment)
    mark = tmp_path / "daemon"
    _until(lambda: mark.exists() and mark.read_text().isdecimal())
    process.kill()
    daemon = Path("/proc") / mark.read_text()
    _until(lambda: not daemon.exists() or " Z " in (daemon / "stat").read_text())


def test_threads_of_a_held_process_wake_up_apart_and_may_roam_again(
    counting: tuple[int, Callable[[], list[int]]],
) -> None:
    pid, look = counting
    threads = sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
    os.sched_setaffinity(threads[1], {min(os.sched_getaffinity(0))})  # its own choice, which it keeps
    before = {thread: os.sched_getaffinity(thread) for thread in threads}
    held = stillness.hold(pid)
    places = stillness.spread(pid)
    assert places == before
    apart = [os.sched_getaffinity(thread) for thread in threads]
    assert all(len(place) == 1 for place in apart)
    assert len(set().union(*apart)) == min(len(threads), len(os.sched_getaffinity(0)))
    stillness.release(pid, held)
    stillness.roam(pid, places)
    assert {thread: os.sched_getaffinity(thread) for thread in threads} == before
    counted = look()
    _until(lambda: all(now != then for now, then in zip(look(), counted, strict=True)))


def test_a_process_that_is_gone_has_nothing_to_spread() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
        assert stillness.spread(gone.pid) == {}
    stillness.roam(gone.pid, {gone.pid: {0}})


def test_a_chain_of_processes_is_held_however_deep_it_is() -> None:
    """Deeper than our stack, which is made small here: a program may fork a thousand of them."""
    chain = """
import os, time
for _ in range(100):
    if os.fork():
        time.sleep(60)
        os._exit(0)
print("deep", flush=True)
time.sleep(60)
"""
    limit = sys.getrecursionlimit()
    with subprocess.Popen([sys.executable, "-c", chain], stdout=subprocess.PIPE, start_new_session=True) as root:
        try:
            assert root.stdout is not None
            assert root.stdout.readline() == b"deep\n"
            sys.setrecursionlimit(len(inspect.stack()) + 80)
            assert len(stillness.descendants(root.pid)) == 100
        finally:
            sys.setrecursionlimit(limit)
            os.killpg(root.pid, signal.SIGKILL)


def test_a_thread_that_is_born_in_between_may_roam_too() -> None:
    code = (
        "import sys, threading\n"
        "sys.stdin.readline()\n"
        "threading.Thread(target=sys.stdin.readline).start()\n"
        "print('born', flush=True)\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        everywhere = os.sched_getaffinity(process.pid)
        held = stillness.hold(process.pid)
        places = stillness.spread(process.pid)
        stillness.release(process.pid, held)
        process.stdin.write(b"!\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"born\n"
        threads = [int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()]
        assert len(threads) == 2
        assert all(len(os.sched_getaffinity(thread)) == 1 for thread in threads)
        stillness.roam(process.pid, places)
        assert all(os.sched_getaffinity(thread) == everywhere for thread in threads)
        process.kill()
