"""On a device the kernels that it ran tell whose work it was, as far as the referee's clock agrees."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.evaluation.constants import HOST_SECONDS
from kforge.evaluation.timing.kernel_ownership import Seen
from kforge.records import Candidate, Correct, Evaluation, EvaluationLimits, EvaluationPolicy, Mismatch, Rejected, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNERS = {"own": "authored", "gemm": "library", "Memcpy DtoD (Device -> Device)": "copy"}
MILLISECOND = (0.9e-3, 1e-3, 1.1e-3)


def seen(calls: int = 1, busy: float | None = None, **seconds: float) -> Seen:
    kernels = [(name.replace("copy", "Memcpy DtoD (Device -> Device)"), calls, s) for name, s in seconds.items()]
    return Seen(kernels, sum(seconds.values()) if busy is None else busy, calls)


def census(**seconds: float) -> Trace:
    return seen(**seconds).census(OWNERS.__getitem__)


def test_shares_are_of_the_devices_time() -> None:
    assert census(own=3e-6, gemm=1e-6) == Trace(authored=3000, library=1000, neither=0, unit="nanoseconds")
    assert census(own=3e-6, gemm=1e-6).authored_share == 0.75
    assert seen(own=1e-6, gemm=2e-6, copy=3e-6).foremost(OWNERS.__getitem__).startswith("Memcpy")
    assert seen(own=1e-6).foremost(OWNERS.__getitem__) == ""


def test_copies_are_nobodys_work_unless_there_is_little_else() -> None:
    assert census(own=3e-6, copy=2e-6) == Trace(authored=3000, library=0, neither=2000, unit="nanoseconds")
    assert census(own=1e-6, copy=9e-6).authored_share == pytest.approx(0.1)
    assert census(copy=9e-6).authored_share == 0.0


def test_a_kernel_that_waits_beside_a_librarys_adds_nothing() -> None:
    beside = seen(own=20e-6, gemm=4e-6, busy=4.5e-6).census(OWNERS.__getitem__)
    assert beside == Trace(authored=500, library=4000, neither=0, unit="nanoseconds")
    assert seen(own=20e-6, busy=5e-6).census(OWNERS.__getitem__).authored_share == 1.0


def test_what_the_clock_confirms_is_believed() -> None:
    assert seen(own=0.95e-3).doubt(MILLISECOND) is None
    assert seen(own=1.5e-3).doubt(MILLISECOND) is None, "a device that has slept is slow at first"
    assert seen(calls=3, own=3e-3).doubt(MILLISECOND) is None
    assert seen(own=4e-3, busy=1e-3).doubt(MILLISECOND) is None, "kernels on several streams overlap"


def test_little_kernels_wait_for_their_host() -> None:
    assert seen(own=2e-6).doubt([50e-6]) is None
    assert seen(own=2e-6).doubt([50e-6, 5e-3, 5e-3]) is None, "others used the machine meanwhile"
    many = Seen([("own", 20, 40e-6)], 40e-6, 1)
    assert many.doubt(MILLISECOND) is None


def test_what_it_does_not_is_not() -> None:
    assert Seen([], 0.0, 3).doubt(MILLISECOND) == "nothing of it was seen on the device"
    assert "account for 1e-06 of" in (seen(own=1e-6).doubt([10 * HOST_SECONDS]) or ""), "the rest is hidden"
    assert "while they were watched" in (seen(own=5e-3).doubt(MILLISECOND) or ""), "it was not that which was timed"


# --- with a worker, on a device that says what it is told ------------------------------------------------------

PROBLEM = """
import launches
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        launches.ran("at::native::softmax", 5e-6)
        return torch.softmax(x, -1)

def get_inputs():
    return [torch.randn(32, 96)]

def get_init_inputs():
    return []
"""
OWN = '''
import sys
import time
import launches
import torch
from torch import nn

def watched():
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "watch":
        frame = frame.f_back
    return frame is not None

SOURCE = """extern "C" __global__ void own(float* x) {}"""

class ModelNew(nn.Module):
    def forward(self, x):
        BODY
        return torch.softmax(x, -1)
'''
BODIES = {
    # many launches, so that a busy machine is no reason for doubt; and they take no longer than launching them does
    "own": 'for _ in range(20): launches.ran("own", 5e-6)',
    "leaf": 'for _ in range(10): launches.ran("own", 1e-6); launches.ran("void at::native::softmax<float>(int)", 9e-6)',
    "nothing": "",
    "hides": 'time.sleep(5e-3); launches.ran("own", 5e-6)',
    "shows off": 'launches.ran("own", 10.0)',
    "slacks": 'if watched(): return launches.ran("own", 5e-6) or x',
}


def judges(track: str, folder: Path) -> Judge:
    platform = platforms.load_folder(Path(__file__).parents[1] / "device_of_files")
    return Judge(
        platform,
        EvaluationPolicy(compile_baseline=False, unsafe=True, track=track),
        cache=folder,
        environment=dict(os.environ),
        ladder=(),
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    )


VOLUME = pytest.mark.volume
on_both_tracks = pytest.mark.parametrize("judge", ["library", "custom"], indirect=True)
mostly_custom = pytest.mark.parametrize("judge", [pytest.param("library", marks=VOLUME), "custom"], indirect=True)
"""For what is the same on both tracks."""


@pytest.fixture(scope="module")
def judge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    if sys.platform != "linux":
        pytest.skip("it reads the memory of another process")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KFORGE_TEST_DEVICE", str(tmp_path_factory.mktemp("device")))
        with judges(request.param, tmp_path_factory.mktemp("cache")) as judge:
            yield judge


def evaluate(judge: Judge, body: str, folder: Path, problem: str = PROBLEM) -> Evaluation:
    (folder / "problem.py").write_text(problem)
    source = OWN.replace("BODY", BODIES[body] or "pass")
    return judge.evaluate(problems.load(folder / "problem.py"), Candidate(source=source, platform="files"))


@on_both_tracks
def test_a_program_with_kernels_of_its_own(judge: Judge, tmp_path: Path) -> None:
    found = evaluate(judge, "own", tmp_path)
    assert isinstance(found.verdict, Correct), found.verdict
    assert {"library", "untraced"}.isdisjoint(found.labels)
    assert found.receipt.trace == Trace(authored=300_000, library=0, neither=0, unit="nanoseconds")


@on_both_tracks
def test_a_fig_leaf(judge: Judge, tmp_path: Path) -> None:
    found = evaluate(judge, "leaf", tmp_path)
    assert found.receipt.trace is not None
    assert found.receipt.trace.authored_share == pytest.approx(0.1)
    if found.receipt.track == "library":
        assert found.correct is not None
        assert "library" in found.labels
    else:
        assert isinstance(found.verdict, Rejected)
        assert found.verdict.rule == "library_does_the_work"
        assert found.verdict.reason.startswith("the track is custom, and its own code ran 10% of the time (of others, ")


DOUBTS = {"nothing": "nothing of it was seen", "hides": "account for", "shows off": "while they were watched"}


@pytest.mark.parametrize(
    ("judge", "body", "words"),
    [
        *(pytest.param("library", *doubt, marks=() if doubt[0] == "nothing" else VOLUME) for doubt in DOUBTS.items()),
        *(("custom", *doubt) for doubt in DOUBTS.items()),
    ],
    indirect=["judge"],
)
def test_a_program_whose_kernels_do_not_fit_its_time(judge: Judge, tmp_path: Path, body: str, words: str) -> None:
    found = evaluate(judge, body, tmp_path)
    assert found.receipt.trace is None, "a share that is not believed is not told"
    if found.receipt.track == "library":
        assert found.correct is not None
        assert "untraced" in found.labels
    else:
        assert isinstance(found.verdict, Rejected)
        assert found.verdict.rule == "untraced"
        assert words in found.verdict.reason


@mostly_custom
def test_where_nobodys_kernels_are_seen_it_is_not_the_programs_fault(judge: Judge, tmp_path: Path) -> None:
    blind = PROBLEM.replace('launches.ran("at::native::softmax", 5e-6)', "pass")
    found = evaluate(judge, "nothing", tmp_path, blind)
    assert found.correct is not None, found.verdict
    assert "untraced" in found.labels


@mostly_custom
def test_a_watched_call_must_be_right_too(judge: Judge, tmp_path: Path) -> None:
    verdict = evaluate(judge, "slacks", tmp_path).verdict
    assert isinstance(verdict, Mismatch), verdict
    assert verdict.case == "a watched call"
