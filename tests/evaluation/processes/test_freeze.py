"""Held processes really stand still, their children and daemons with them."""

import contextlib
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

from kforge.evaluation.processes import freeze, launch

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
        for pid in (*freeze.descendants(root.pid), root.pid):
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
    held = freeze.hold(pid)
    before = look()
    time.sleep(0.05)
    assert look() == before
    freeze.release(pid, held)
    _until(lambda: all(now > then for now, then in zip(look(), before, strict=True)))


def test_a_daemon_stays_among_the_descendants(counting: tuple[int, Callable[[], list[int]]]) -> None:
    pid, _ = counting
    sessions = {os.getsid(child) for child in freeze.descendants(pid)}
    assert len(sessions - {pid}) == 1


def test_a_process_that_is_gone_is_at_rest() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert freeze.hold(gone.pid) == []
    freeze.release(gone.pid, [])
    assert freeze.descendants(gone.pid) == []


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
    held = freeze.hold(pid)
    spread = freeze.Spread(pid)
    apart = [os.sched_getaffinity(thread) for thread in threads]
    assert all(len(place) == 1 for place in apart)
    assert len(set().union(*apart)) == min(len(threads), len(os.sched_getaffinity(0)))
    freeze.release(pid, held)
    spread.begin()
    assert os.sched_getaffinity(pid) == before[pid]
    assert [os.sched_getaffinity(thread) for thread in threads[1:]] == apart[1:], "they stay until the end"
    spread.end()
    assert {thread: os.sched_getaffinity(thread) for thread in threads} == before
    counted = look()
    _until(lambda: all(now != then for now, then in zip(look(), counted, strict=True)))


ONE_WAITS = """
import threading, sys
wait = threading.Event()
threading.Thread(target=wait.wait, daemon=True).start()
def work():
    while True: pass
threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
work()
"""


def test_threads_that_compute_get_processors_of_their_own() -> None:
    """Also where one that waits, as a driver's thread does, is between them."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two processors")
    with subprocess.Popen([sys.executable, "-c", ONE_WAITS], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        first, waiting, last = sorted(int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir())
        _until(lambda: all(freeze._idleness(process.pid, thread)[0] < -10_000_000 for thread in (first, last)))
        held = freeze.hold(process.pid)
        freeze.Spread(process.pid)
        places = {thread: os.sched_getaffinity(thread) for thread in (first, waiting, last)}
        freeze.release(process.pid, held)
        process.kill()
    assert places[first] != places[last]


def test_a_process_that_is_gone_has_nothing_to_spread() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
        spread = freeze.Spread(gone.pid)
    spread.begin()
    spread.end()


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
            assert len(freeze.descendants(root.pid)) == 100
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
        held = freeze.hold(process.pid)
        spread = freeze.Spread(process.pid)
        freeze.release(process.pid, held)
        process.stdin.write(b"!\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"born\n"
        threads = [int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()]
        assert len(threads) == 2
        assert all(len(os.sched_getaffinity(thread)) == 1 for thread in threads)
        spread.end()
        assert all(os.sched_getaffinity(thread) == everywhere for thread in threads)
        process.kill()


@contextlib.contextmanager
def started(code: str, *arguments: str, keep: tuple[int, ...] = ()) -> Iterator[int]:
    """A process that has said that it is ready, with all that it started."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        pass_fds=keep,
        start_new_session=True,
        preexec_fn=partial(launch.confine, os.getpid()),
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            launch.kill_tree(process.pid)


COPY = """
import os, sys, threading
size, file = 16 << 20, int(sys.argv[1])

def copy(byte):
    block = [bytes([byte]) * (1 << 20)] * (size >> 20)
    while True:
        os.pwritev(file, block, 0)

for byte in range(8):
    threading.Thread(target=copy, args=(byte,), daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


def test_a_system_call_in_flight_is_over_when_a_process_is_held() -> None:
    """Threads copy by single calls of milliseconds, one after another: each waits, uninterruptible, for the others."""
    descriptor = os.memfd_create("copied", 0)
    os.ftruncate(descriptor, 16 << 20)
    with mmap.mmap(descriptor, 16 << 20) as memory, started(COPY, str(descriptor), keep=(descriptor,)) as pid:
        for _ in range(15):
            held = freeze.hold(pid)
            before = memory[:]
            time.sleep(0.02)
            assert memory[:] == before
            freeze.release(pid, held)
            time.sleep(0.01)
    os.close(descriptor)


def test_a_thread_that_waits_for_the_child_of_its_vfork_is_at_rest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    code = """
import os, sys
print("ready", flush=True)
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
"""
    with started(code, str(tmp_path / "fifo")) as pid:
        _until(lambda: b") D " in Path(f"/proc/{pid}/stat").read_bytes())
        held = freeze.hold(pid)
        assert len(held) == 1
        freeze.release(pid, held)


def test_a_process_whose_first_thread_has_ended_is_held() -> None:
    code = """
import ctypes, threading, time
def beat():
    while True: time.sleep(0.001)
for _ in range(2): threading.Thread(target=beat).start()
print("ready", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[__import__("platform").machine()], 0)
"""
    with started(code) as pid:
        _until(lambda: b" Z " in Path(f"/proc/{pid}/stat").read_bytes())
        assert freeze.hold(pid) == []
        turns = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        assert len(turns) == 3
        time.sleep(0.02)
        assert turns == [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]


REPLACE = """
import os, time
end = time.monotonic() + 20
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < end:
            if os.fork(): os._exit(0)
        os._exit(0)
print("ready", flush=True)
time.sleep(60)
"""


def test_there_is_a_deadline_for_processes_that_replace_themselves() -> None:
    """They are caught or not, by luck; where they are not, the look-up ends all the same."""
    with started(REPLACE) as pid:
        begun = time.monotonic()
        with contextlib.suppress(freeze.StillRunningError):
            freeze.hold(pid, deadline=0.3)
        freeze.descendants(pid, deadline=0.3)
        assert time.monotonic() - begun < 5


def test_what_does_not_stop_before_the_deadline_can_be_let_go_again() -> None:
    code = "import os, time\nprint('ready', flush=True) if os.fork() else None\ntime.sleep(60)"
    with started(code) as pid:
        (child,) = freeze.descendants(pid)
        with pytest.raises(freeze.StillRunningError) as caught:
            freeze.hold(pid, lambda _: os.kill(child, signal.SIGCONT), deadline=0.0)
        freeze.release(pid, caught.value.held)
        _until(lambda: not _is_stopped(pid) and not _is_stopped(child))


def test_processes_are_stopped_at_once_where_there_is_a_way_to() -> None:
    asked = []
    with started(REPLACE) as pid:

        def kill_all(seconds: float) -> None:
            asked.append(seconds)
            launch.kill_tree(pid)

        freeze.hold(pid, kill_all)
    assert all(0 < seconds <= 2 for seconds in asked)


def _is_stopped(pid: int) -> bool:
    return b") T " in Path(f"/proc/{pid}/stat").read_bytes()


def test_zombies_are_at_rest_and_not_held() -> None:
    code = """
import os, time
for _ in range(50):
    if os.fork() == 0: os._exit(0)
if os.fork() == 0: time.sleep(60)
print("ready", flush=True)
time.sleep(60)
"""
    with started(code) as pid:
        _until(lambda: sum(b" Z " in Path(f"/proc/{one}/stat").read_bytes() for one in freeze.descendants(pid)) == 50)
        held = freeze.hold(pid)
        assert len(held) == 1
        freeze.release(pid, held)
