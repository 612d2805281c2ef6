"""Whatever a program starts stands still with its worker, behind every layer that works on this machine."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from kforge.evaluation.worker_client.client import Fault, WorkerClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.evaluation.sandbox.conftest import Inside

    from kforge.evaluation.processes.worker_start import Workers

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="these programs are written in C")

PRELUDE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static volatile unsigned* counter;
static time_t end;
static void count(void) {
    if (time(NULL) > end) _exit(0);  /* nothing of this test outlives it by much, even where it is not ended */
    ++*counter;
}
static void run(void);
int main(int argc, char** argv) {
    int file = open(argv[1], O_RDWR);
    counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    end = time(NULL) + 30;
    run();
    while (*counter < 3) usleep(1000);
    if (argc > 2) for (;;) pause();
    return 0;
}
"""
ORPHAN = r"""
static void run(void) {
    if (fork() == 0) {
        setsid();
        if (fork()) _exit(0);
        for (;;) { count(); usleep(100); }
    }
}
"""
REPLACING = r"""
static void run(void) {
    for (int chain = 0; chain < 6; ++chain)
        if (fork() == 0) {
            setsid();
            for (;;) { count(); if (fork()) _exit(0); }
        }
}
"""
TWIN = r"""
static char stack[1 << 16];
static int twin(void* unused) { for (;;) { count(); usleep(100); } return 0; }
static void run(void) { clone(twin, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_FILES, NULL); }
"""
ORPHANED_TWIN = r"""
static char stacks[2][1 << 16];
static int twin(void* unused) { setsid(); for (;;) { count(); usleep(100); } return 0; }
static int start(int (*what)(void*), char* stack) {
    return clone(what, stack + (1 << 16), CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, NULL);
}
static int between(void* unused) { start(twin, stacks[1]); _exit(0); }
static void run(void) { start(between, stacks[0]); }
"""
ZOMBIES = r"""
static void run(void) {
    for (int i = 0; i < 400; ++i) if (fork() == 0) _exit(0);
    if (fork() == 0) for (;;) { count(); usleep(100); }
}
"""
CONTINUING = r"""
static void run(void) {
    for (int i = 0; i < 4; ++i)
        if (fork() == 0) {
            setsid();
            for (;;) { count(); kill(-1, SIGCONT); }
        }
}
"""


class Counting:
    """A worker whose program has started processes that count in a file."""

    def __init__(self, take: Callable[[Path | None], WorkerClient], builds: Path, code: str) -> None:
        builds.mkdir()
        (builds / "program.c").write_text(PRELUDE + code)
        subprocess.run(["cc", "-O1", "-o", "program", "program.c"], cwd=builds, check=True)
        (builds / "counter").write_bytes(bytes(4096))
        for made in (builds, *builds.iterdir()):
            made.chmod(0o777)
        with (builds / "counter").open("rb") as file:
            self._memory = mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ)
        stay = "subprocess.Popen" if code in (TWIN, ZOMBIES) else "subprocess.run"
        arguments = [str(builds / "program"), str(builds / "counter"), *(["stay"] if stay.endswith("Popen") else [])]
        take(builds).load(
            f"import ctypes, subprocess, time\nctypes.CDLL(None).prctl(36, 0, 0, 0, 0)\n{stay}({arguments!r})\n"
            f"while not any(open({arguments[1]!r}, 'rb').read(4)): time.sleep(0.001)",
            "candidate.py",
            "time",
        )

    def now(self) -> int:
        return int(struct.unpack_from("=I", self._memory)[0])

    def stands_still(self) -> bool:
        before = self.now()
        time.sleep(0.05)
        return before == self.now()


@pytest.fixture
def counting(client: Callable[[Path | None], WorkerClient], tmp_path: Path) -> Callable[[str], Counting]:
    return lambda code: Counting(client, tmp_path / "builds", code)


def test_a_worker_cannot_decline_to_adopt_its_orphans(inside: Inside) -> None:
    said = inside("""
libc = ctypes.CDLL(None, use_errno=True)
refused = libc.prctl(36, 0, 0, 0, 0), errno.errorcode.get(ctypes.get_errno())
worker, (read, write) = os.getpid(), os.pipe()
if os.fork() == 0:
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent: time.sleep(0.001)
        os.write(write, str(os.getppid() == worker).encode())
    os._exit(0)
say((*refused, os.read(read, 8).decode()))""")
    assert said == "(-1, 'EPERM', 'True')"


def test_no_signal_of_its_choice_reaches_a_held_program_by_the_kernel(inside: Inside) -> None:
    """SIGCONT for every event on a descriptor would let it go on while another process works."""
    said = inside("""
import fcntl
read, write = os.pipe()
say(attempt(fcntl.fcntl, read, 10, signal.SIGCONT))""")
    assert said == "refused: EPERM"


@pytest.mark.parametrize(
    "code",
    [ORPHAN, TWIN, ORPHANED_TWIN, ZOMBIES],
    ids=["an orphan", "a twin", "an orphaned twin", "a child among zombies"],
)
def test_it_stands_still_with_its_worker(counting: Callable[[str], Counting], code: str) -> None:
    assert counting(code).stands_still()


@pytest.mark.parametrize("code", [REPLACING, CONTINUING], ids=["replace themselves", "continue each other"])
def test_processes_that_cannot_be_caught_are_stopped_or_refused(
    counting: Callable[[str], Counting], workers: Workers, code: str
) -> None:
    try:
        assert counting(code).stands_still()
    except Fault as fault:
        refused = fault.verdict.reason
    else:
        return
    assert "does not stop" in refused
    assert code == CONTINUING or workers.sandbox.startswith("landlock"), "a cell's init stops all of them at once"
