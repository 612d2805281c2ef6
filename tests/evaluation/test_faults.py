"""Faults that a program, its worker or its compiler can have: each is told apart, and the next program is judged right.

Where each fault of the list in docs/threat-model.md is injected is written there. These tests run real programs in
real workers; after every fault the same judge must find an honest program correct.
"""

from __future__ import annotations

import os
import pickle
import random
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.errors import EvaluationError
from kforge.evaluation import Judge
from kforge.evaluation.processes.fork_requests import Reaped, Spawned
from kforge.evaluation.processes.freeze import descendants
from kforge.evaluation.stages import WORDS
from kforge.evaluation.transport import wire
from kforge.records import Candidate, EvaluationLimits, EvaluationPolicy, Problem, Rejected, RuntimeFailure, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds workers and their sockets through /proc")

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return [64]
"""

HEAD = """
import ctypes, mmap, os, resource, stat, sys, time, torch
from torch import nn
from kforge import inline

def sockets():
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
            yield int(name)

def say(data):
    for descriptor in sockets():
        os.write(descriptor, data)

def timed():
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "go":
            return True
        frame = frame.f_back
    return False
"""

CLASS = """
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
{construct}

    def forward(self, x):
{call}
        return torch.relu(self.linear(x))
"""


def program(*, load: str = "", construct: str = "", call: str = "") -> str:
    """A right program that does something else as well, when it is loaded, constructed or called."""
    body = CLASS.format(construct=textwrap.indent(construct, " " * 8), call=textwrap.indent(call, " " * 8))
    return f"{HEAD}\n{load}\n{body}"


def native(source: str) -> str:
    return f"library = inline.compile(r'''{source}''')"


HONEST = program()
FAR = program(call="if timed(): raise ValueError('got so far')")
"""Right in all cases, and then it ends: a second sooner than an honest program is timed."""


@pytest.fixture(scope="module")
def stages() -> list[Callable[[str], None]]:
    """Who is told which stage the evaluation enters."""
    return []


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, stages: list[Callable[[str], None]]) -> Iterator[Judge]:
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False),
        cache=tmp_path_factory.mktemp("cache"),
        environment={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]},
        limits=EvaluationLimits(call_deadline=2.0, timing_seconds=0.1, timing_cap=0.2),
        on_stage=lambda name: [tell(name) for tell in stages] and None,
    ) as judge:
        yield judge


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    path = tmp_path_factory.mktemp("problem") / "problem.py"
    path.write_text(PROBLEM)
    return problems.load(path)


@pytest.fixture
def verdict_on(judge: Judge, problem: Problem) -> Callable[[str], Verdict]:
    return lambda source: judge.evaluate(problem, Candidate(source=source, platform="null")).verdict


# --- raw bytes in the channel, from a real program ------------------------------------------------------------

ZEROS = wire.TensorRef("float32", (32, 64), (64, 1), 0)
FORGED = b'{"verdict":{"state":"correct","max_error":0,"tolerance":1,"cases":20},"labels":[]}'
SAID = {
    "noise": random.Random(7).randbytes(64),
    "pickle": pickle.dumps(print),
    "ready": wire.Ready().encode(),
    "state": wire.Constructed({}).encode(),
    "zeros": wire.Result(ZEROS, []).encode(),
    "done": wire.Done(1, [None], []).encode(),
    "failed": wire.Failed("correct", "correct", "correct").encode(),
    "spawned": Spawned(1, "").encode(),
    "reaped": Reaped(True, 0).encode(),
    "verdict": wire.Document("response", FORGED.decode()).encode(),
    "order": wire.Go(1).encode(),
    "a long header": wire.HEADER.pack(wire.MAGIC, wire.Ready.kind, 0)[:5] + b"x" * 20,
}
WHEN = {
    "load": lambda act: program(load=act),
    "construct": lambda act: program(construct=act),
    "call": lambda act: program(call=act),
    "timed": lambda act: program(call=f"if timed(): {act}"),
}
NATIVE_SAY = native("""
#include <cstdint>
#include <sys/stat.h>
#include <unistd.h>
extern "C" void tell(const uint8_t* data, int64_t length) {
    for (int fd = 3; fd < 256; ++fd) {
        struct stat it;
        if (!fstat(fd, &it) && S_ISSOCK(it.st_mode) && write(fd, data, length) < 0) return;
    }
}""") + "\ndef say(data): library.tell(torch.frombuffer(bytearray(data), dtype=torch.uint8), len(data))"  # fmt: skip


@pytest.mark.parametrize(
    ("language", "when", "most"),
    [
        *(("python", when, 3) for when in WHEN),
        *(pytest.param("python", when, 12, marks=pytest.mark.volume) for when in WHEN),
        ("c++", "timed", 2),
        *(pytest.param("c++", when, 2, marks=pytest.mark.volume) for when in WHEN if when != "timed"),
    ],
)
def test_a_program_that_talks_into_its_channel_fails(
    judge: Judge, problem: Problem, verdict_on: Callable[[str], Verdict], when: str, language: str, most: int
) -> None:
    """`most`: how many different texts are said, each by a program of its own."""
    some = {"load": slice(2, None, 3), "construct": slice(0, None, 3), "timed": slice(2, None, 6), "call": slice(None)}
    said = list(SAID.items())[some[when]][:most]
    judge.describe(problem)
    referee = judge._referee
    rules = set()
    for name, data in said:
        source = WHEN[when](f"say({data!r})")
        if language == "c++":
            source = source.replace("def timed", f"{NATIVE_SAY}\n\ndef timed")
        verdict = verdict_on(source)
        assert verdict.state in ("rejected", "runtime_error", "mismatch"), f"{name}: {verdict}"
        rules |= {verdict.rule} if isinstance(verdict, Rejected) else set()
    assert rules == {"channel"}
    if when == "timed":
        assert verdict_on(HONEST).state == "correct"
    else:
        assert verdict_on(FAR).reason == "ValueError: got so far"
    assert judge._referee is referee, "no lie was taken for a fault of the referee"


# --- faults of a kernel ---------------------------------------------------------------------------------------

NULL = native('extern "C" void kernel(float* out) { *(volatile float*)0 = out[0]; }')
WILD = native('extern "C" void kernel(float* out) { for (long i = 0;; i += 512) ((volatile float*)out)[i] = 0; }')
SPIN = native('extern "C" void kernel(float* out) { for (;;) *(volatile float*)out = 0; }')
SPIN_ALL = native("""
extern "C" void kernel(float* out) {
    #pragma omp parallel
    for (;;) *(volatile float*)out = 0;
}""")
GREEDY = native("""
#include <cstring>
#include <vector>
extern "C" void kernel(float* out) {
    std::vector<char*> kept;
    for (long i = 0; i < 4096; ++i) { kept.push_back(new char[1 << 20]); std::memset(kept.back(), 1, 1 << 20); }
}""")
# The limit stands for a machine that has no more: never could this test take what others need.
LITTLE = """
with open("/proc/self/statm") as file: mapped = int(file.read().split()[0]) * mmap.PAGESIZE
resource.setrlimit(resource.RLIMIT_AS, (mapped + (256 << 20),) * 2)
"""
KERNEL = "library.kernel(torch.empty(8))"
VOLUME = pytest.mark.volume
"""Another program with the same fault: a signal, a deadline, an exception of torch."""


@pytest.mark.parametrize(
    ("source", "fault", "words"),
    [
        pytest.param(program(load=NULL, call=KERNEL), "died", "SIGSEGV", id="null pointer"),
        pytest.param(program(load=WILD, call=KERNEL), "died", "SIGSEGV", id="wild write", marks=VOLUME),
        pytest.param(program(load=SPIN, call=KERNEL), "timed_out", "within 2 s", id="infinite loop", marks=VOLUME),
        pytest.param(program(load=SPIN_ALL, call=KERNEL), "timed_out", "within 2 s", id="infinite loop in all threads"),
        pytest.param(program(load=GREEDY, call=LITTLE + KERNEL), "died", "SIGABRT", id="out of memory in a kernel"),
        pytest.param(
            program(call=LITTLE + "torch.ones(1 << 28)"), "raised", "memory", id="out of memory in an operator"
        ),
        pytest.param(
            program(call="torch.empty(1 << 50)"), "raised", "memory", id="more than any machine has", marks=VOLUME
        ),
        pytest.param(
            program(call=LITTLE + "kept = [bytearray(1 << 20) for _ in range(4096)]"), "raised", "MemoryError",
            id="out of memory in Python",
        ),
    ],
)  # fmt: skip
def test_a_fault_of_a_kernel_is_told_and_the_next_program_is_judged_right(
    verdict_on: Callable[[str], Verdict], source: str, fault: str, words: str
) -> None:
    verdict = verdict_on(source)
    assert isinstance(verdict, RuntimeFailure), verdict
    assert verdict.fault == fault
    assert words in verdict.reason
    assert verdict_on(FAR).reason == "ValueError: got so far"


def test_when_memory_runs_out_the_kernel_ends_workers_first(verdict_on: Callable[[str], Verdict]) -> None:
    adjusted = verdict_on(program(load="raise ValueError(open('/proc/self/oom_score_adj').read().strip())"))
    assert adjusted.reason == "ValueError: 1000"


# --- compilers ------------------------------------------------------------------------------------------------


def test_a_compiler_that_hangs_is_stopped_with_its_children(problem: Problem, tmp_path: Path) -> None:
    """A compiler is part of the machine and not of the program, so this judge has another PATH."""
    tools = tmp_path / "tools"
    tools.mkdir()
    mark = f"30{random.SystemRandom().randrange(10**9)}"
    (tools / "g++").write_text(f'#!/bin/sh\ncase "$*" in *"-###"*) exit 0;; esac\nsleep {mark} & sleep {mark}\n')
    (tools / "g++").chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": os.environ["HOME"]}
    build = "inline.configure(deadline=1.0)\n" + native('extern "C" int f() { return 1; }')
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False),
        cache=tmp_path / "cache",
        environment=environment,
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        verdict = judge.evaluate(problem, Candidate(source=program(load=build), platform="null")).verdict
        assert verdict.state == "compilation_failure"
        assert verdict.reason == "the compiler was stopped after 1 s"
        assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark in said_by(path)]
        (tools / "g++").unlink()
        again = judge.evaluate(problem, Candidate(source=program(load=build), platform="null"))
        assert again.verdict.state == "correct"


def said_by(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


TORCH_BUILD = """
from torch.utils import cpp_extension
with open("kernel.cpp", "w") as file:
    file.write('extern "C" int f() { return 1; }')
cpp_extension.load("fast", ["kernel.cpp"], is_python_module=False)
"""


@pytest.mark.skipif(shutil.which("ninja") is None, reason="torch builds with ninja")
def test_a_build_that_was_killed_leaves_no_lock_that_lasts(judge: Judge, problem: Problem, tmp_path: Path) -> None:
    """torch waits for ever on the lock file of a build whose process was killed."""
    candidate = Candidate(source=program(load=TORCH_BUILD), platform="null")
    cache = Path(judge._setup.cache)
    left = cache / "builds" / candidate.digest[:20] / "extensions" / "fast"
    left.mkdir(parents=True)
    (left / "lock").touch()
    (left / "fast.so").write_bytes(b"\x7fELF half a library")
    assert judge.evaluate(problem, candidate).verdict.state == "correct"
    assert not (left / "lock").exists()


# --- killed processes -----------------------------------------------------------------------------------------


def workers_of(judge: Judge) -> list[int]:
    """The live workers of a judge, oldest first."""
    assert judge._referee is not None
    found = {}
    for pid in descendants(judge._referee.pid):
        try:
            folder = Path(f"/proc/{pid}/cwd").readlink().name
        except OSError:
            continue
        if folder.startswith("worker-"):
            found[folder] = pid
    return [found[folder] for folder in sorted(found)]


def killing(judge: Judge, seconds: float, whom: Callable[[Judge], int], when: str = "build") -> Callable[[str], None]:
    """In this stage, the first in which there is a worker, wait so long and kill."""

    def kill() -> None:
        victim = whom(judge) if when == "build" else None
        time.sleep(seconds)
        os.kill(victim or whom(judge), signal.SIGKILL)

    def tell(stage: str) -> None:
        if stage == WORDS[when]:
            victims.start()

    victims = threading.Thread(target=kill)
    return tell


POINTS = 10


def test_a_worker_killed_at_any_point_died(
    judge: Judge, stages: list[Callable[[str], None]], verdict_on: Callable[[str], Verdict]
) -> None:
    assert verdict_on(HONEST).state == "correct"
    chance = random.Random(11)
    slow = program(call="time.sleep(0.002)")  # so that a kill falls into calls as often as between them
    for point in range(POINTS):
        delay = 0.4 * (point + chance.random()) / POINTS
        stages.append(killing(judge, delay, lambda judge: workers_of(judge)[0]))
        verdict = verdict_on(slow)
        stages.clear()
        assert isinstance(verdict, RuntimeFailure), f"after {delay:.3f} s: {verdict}"
        assert verdict.fault == "died", f"after {delay:.3f} s: {verdict}"
        assert verdict.reason == "the process was killed by SIGKILL"
    assert verdict_on(HONEST).state == "correct"


def fork_server_of(judge: Judge) -> int:
    assert judge._referee is not None
    referee = judge._referee.pid
    # the other child is the warden
    children = [int(pid) for pid in Path(f"/proc/{referee}/task/{referee}/children").read_text().split()]
    return next(pid for pid in children if Path(f"/proc/{pid}/cwd").readlink().name == "fork-server")


@pytest.mark.parametrize(
    "whom", [lambda judge: workers_of(judge)[-1], fork_server_of], ids=["the worker of the baseline", "the fork server"]
)
def test_a_killed_process_of_ours_is_no_verdict_and_is_replaced(
    judge: Judge,
    stages: list[Callable[[str], None]],
    verdict_on: Callable[[str], Verdict],
    whom: Callable[[Judge], int],
) -> None:
    assert verdict_on(HONEST).state == "correct"
    assert workers_of(judge) == []
    stages.append(killing(judge, 0.2, whom, when="time"))
    with pytest.raises(EvaluationError):
        verdict_on(program(call="time.sleep(0.002)"))
    stages.clear()
    assert verdict_on(HONEST).state == "correct"


# --- the list -------------------------------------------------------------------------------------------------


def test_every_fault_of_the_list_is_injected_by_a_test_that_exists(root: Path) -> None:
    section = (root / "docs" / "threat-model.md").read_text().partition("## Faults")[2]
    rows = [row for row in section.splitlines() if row.startswith("| ") and not row.startswith(("| fault", "| ---"))]
    assert len(rows) >= 14
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        assert named, row
        for path, test in named:
            assert f"def {test}(" in (root / path).read_text(), f"{path} has no {test}"
