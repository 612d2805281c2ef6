"""Whose code runs is seen from outside, and on the track `custom` it must be the program's own."""

import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.evaluation.processes import freeze, launch
from kforge.evaluation.transport.channel import Channel
from kforge.evaluation.worker_client.code_ownership import (
    GAP,
    TELLS_COUNTERS,
    WRITABLE_CODE,
    CodeSampler,
    _Map,
    _Moment,
    census,
    owner,
    positions,
    working,
)
from kforge.records import Candidate, EvaluationLimits, EvaluationPolicy, Problem, Rejected, Trace

pytestmark = pytest.mark.skipif(not TELLS_COUNTERS, reason="this kernel does not tell where a stopped thread is")

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * x

def get_inputs():
    return [torch.randn(128, 256)]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
from torch import nn
from kforge import inline

library = inline.compile(r'''
#include <cmath>
#include <cstdint>
extern "C" void gate(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        double power = 1.0, e = std::fabs(double(x[i])) / 1024.0;  // exp by ten squarings
        power += e * (1.0 + e / 2 * (1.0 + e / 3 * (1.0 + e / 4 * (1.0 + e / 5))));
        for (int k = 0; k < 10; ++k) power *= power;
        out[i] = float(double(x[i]) / (1.0 + (x[i] > 0 ? 1.0 / power : power)));
    }
}
''')

class ModelNew(nn.Module):
    def forward(self, x):
        BODY
"""
OWN = KERNEL.replace("BODY", "out = torch.empty_like(x); library.gate(x, out, x.numel()); return out")
FIG_LEAF = KERNEL.replace("BODY", "out = torch.sigmoid(x) * x; library.gate(x, out[:1, :1], 1); return out")


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    path = tmp_path_factory.mktemp("problem") / "gate.py"
    path.write_text(PROBLEM)
    return problems.load(path)


@pytest.fixture(scope="module", params=["library", "custom"])
def judge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(
        platforms.find("cpu"),
        EvaluationPolicy(compile_baseline=False, track=request.param),
        cache=tmp_path_factory.mktemp("cache"),
        environment={"PATH": os.environ["PATH"]},
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        yield judge


def test_a_program_that_does_its_own_work(judge: Judge, problem: Problem) -> None:
    found = judge.evaluate(problem, Candidate(source=OWN, platform="cpu"))
    assert found.correct is not None, found.verdict
    assert "library" not in found.labels
    assert found.receipt.trace is not None
    share = found.receipt.trace.authored_share
    assert share is not None
    assert share > 0.8


def test_a_fig_leaf(judge: Judge, problem: Problem) -> None:
    found = judge.evaluate(problem, Candidate(source=FIG_LEAF, platform="cpu"))
    assert found.receipt.trace is not None
    assert (found.receipt.trace.authored_share or 0.0) < 0.2
    if found.receipt.track == "library":
        assert found.correct is not None
        assert "library" in found.labels
    else:
        assert isinstance(found.verdict, Rejected)
        assert found.verdict.rule == "library_does_the_work"


def test_who_wrote_what() -> None:
    packages = Path(sysconfig.get_path("purelib")).resolve()
    torch_folder = Path(torch.__file__).resolve().parent / "lib"
    assert owner(f"{torch_folder}/libtorch_cpu.so") == "library"
    assert owner(f"{packages}/numpy.libs/libscipy_openblas64_-1234.so") == "library"
    assert owner("/usr/lib/x86_64-linux-gnu/libopenblas.so.0") == "library"
    assert owner("/usr/lib/x86_64-linux-gnu/libm.so.6") == "neither"
    assert owner(f"{torch_folder}/libgomp.so.1") == "neither"
    assert owner(f"{torch_folder}/libtorch_python.so") == "neither"
    assert owner("[vdso]") == "neither"
    assert owner("/home/somebody/.cache/kforge/builds/1234/inline/abcd.so") == "authored"
    assert owner("/home/somebody/.cache/kforge/builds/1234/inline/abcd.so (deleted)") == "authored"
    assert owner("") == "authored", "code that is in no file was made by the program"


def test_an_environment_behind_a_link_is_as_good(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(sys.prefix)
    python = tmp_path / "linked" / Path(sys.executable).relative_to(sys.prefix)
    computing = Path(torch.__file__).resolve().parent / "lib" / "libtorch_cpu.so"
    asked = f"from kforge.evaluation.worker_client.code_ownership import owner; print(owner({str(computing)!r}))"
    environment = {**os.environ, "PYTHONPATH": launch.import_path()}
    said = subprocess.run([python, "-c", asked], env=environment, capture_output=True, text=True, check=True).stdout
    assert said == "library\n"


def test_the_driver_of_a_kernel_device_does_only_the_programs_own_work() -> None:
    packages = Path(sysconfig.get_path("purelib")).resolve()
    moments = [f"{packages}/weaver/_weaver.so", "/usr/lib/libloom.so.2", "/usr/lib/libm.so.6", "", torch.__file__]
    assert census(moments) == Trace(authored=1, library=2, neither=2)
    assert census(moments, ("/weaver/", "libloom")) == Trace(authored=3, library=1, neither=1)


def test_a_thread_that_waits_in_openmp_does_not_work() -> None:
    packages = Path(sysconfig.get_path("purelib")).resolve()
    waiting = [f"{packages}/torch/lib/libgomp.so.1", "/usr/lib/libgomp.so.1.0.0", "/lib/libomp.so.5", "libiomp5.so"]
    at_work = [torch.__file__, "/tmp/libgompertz.so", "/usr/lib/libm.so.6"]
    assert working([*waiting, *at_work]) == at_work


def test_a_share_needs_moments() -> None:
    assert census(["[vdso]"]).authored_share is None
    assert Trace(authored=3, library=1, neither=5).authored_share == 0.75


def test_who_only_waits_for_a_core_is_where_it_was() -> None:
    """Two looks at a thread that has not moved are one moment; at one that runs in a circle they are two."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) as turning:
        try:
            time.sleep(0.3)
            seen: dict[str, _Moment] = {}
            held = freeze.hold(turning.pid)
            first, again = positions(turning.pid, seen), positions(turning.pid, seen)
            freeze.release(turning.pid, held)
            time.sleep(0.1)
            freeze.hold(turning.pid)
            later = positions(turning.pid, seen)
        finally:
            turning.kill()
    assert (len(first), again, len(later)) == (1, [], 1)


def test_a_thread_that_waits_is_in_no_code() -> None:
    """Also where the kernel says otherwise, because the thread repeats its interrupted system call."""
    waiting = "import threading; threading.Thread(target=threading.Event().wait).start(); threading.Event().wait()"
    with subprocess.Popen([sys.executable, "-c", waiting], start_new_session=True) as process:
        try:
            while len(list(Path(f"/proc/{process.pid}/task").iterdir())) < 2:
                time.sleep(0.01)
            time.sleep(0.3)
            freeze.hold(process.pid)
            found = positions(process.pid, {})
        finally:
            process.kill()
    assert found == []


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_what_is_held_is_not_looked_at_before_it_is_let_go(tmp_path: Path) -> None:
    """A look would let it go too early, and one that meets the letting go waits in vain for it to stop."""
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(["sleep", "60"], start_new_session=True) as sleeper:
        channel = Channel(ours, max_frame=1)
        process = launch.Process(sleeper.pid, channel, tmp_path / "log", wait=sleeper.wait, end=sleeper.wait)
        process.hold()
        watch = CodeSampler(process, looks=1)
        time.sleep(20 * GAP[1])
        still_held = is_stopped(sleeper.pid)
        process.release()
        watch.begin()
        watch._watcher.join()
        let_go = not is_stopped(sleeper.pid)
        sleeper.kill()
    assert (still_held, let_go) == (True, True)


def test_code_in_writable_memory_is_a_librarys_and_other_code_without_a_file_the_programs() -> None:
    lines = [
        "00001000-00002000 rwxp 00000000 00:00 0 ",
        "00003000-00004000 r-xp 00000000 00:00 0 ",
        "00005000-00006000 r-xp 00000000 08:01 77                         /tmp/own.so",
    ]
    places = _Map(lines)
    assert places.position(0x1800).file == WRITABLE_CODE
    assert places.position(0x3800).file == ""
    assert places.position(0x5010) == ("/tmp/own.so", 0x10)
    assert [owner(places.position(at).file) for at in (0x1800, 0x3800, 0x5010)] == ["library", "authored", "authored"]
