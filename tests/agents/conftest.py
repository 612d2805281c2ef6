import json

import pytest

from kforge import platforms
from kforge.models import Exchange, open_model
from kforge.records import (
    Candidate,
    Comparison,
    Correct,
    HotSpot,
    Interval,
    Peaks,
    Problem,
    Profile,
    Recommendation,
    Roofline,
    TensorSpec,
    Timing,
    Workload,
)

PROGRAM = "import torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x + 1\n"


@pytest.fixture
def program() -> str:
    return PROGRAM


@pytest.fixture
def platform():
    return platforms.find("null")


@pytest.fixture
def scripted(tmp_path):
    """Opens a scripted model with these answers, on its own exchange folder."""

    def opened(*answers):
        script = tmp_path / "script.json"
        script.write_text(json.dumps(answers))
        return open_model(f"scripted:{script}", exchange=tmp_path / "exchange", keys={})

    return opened


@pytest.fixture
def asked(tmp_path):
    """The request of an identity, as the exchange has it."""
    asked = Exchange(tmp_path / "exchange").questions
    return lambda identity: next(
        json.loads((tmp_path / "exchange" / f"{each.name}.request.json").read_text())
        for each in asked()
        if each.request.identity == identity
    )


@pytest.fixture
def problem() -> Problem:
    return Problem(name="add_one", source="class Model: ...  # adds one\n")


@pytest.fixture
def workload() -> Workload:
    vector = TensorSpec(shape=(1000,), dtype="float32")
    return Workload(inputs=(vector,), outputs=(vector,), parameters=(), flops=0, bytes_moved=8000)


@pytest.fixture
def candidate() -> Candidate:
    return Candidate(source=PROGRAM, platform="null")


@pytest.fixture
def correct() -> Correct:
    interval = Interval(median=1.5, low=1.4, high=1.6)
    eager = Comparison(baseline="eager", identity="torch", seconds=3e-6, speedup=interval)
    seconds = Interval(median=2e-6, low=1.9e-6, high=2.1e-6)
    return Correct(
        max_error=0.0, tolerance=1e-5, cases=20, timing=Timing(seconds=seconds, comparisons=(eager,), pairs=100)
    )


@pytest.fixture
def profile() -> Profile:
    peaks = Peaks(device="this machine", bytes_per_second=1e10, flops_per_second=1e11)
    return Profile(
        tool="torch.profiler",
        seconds=2e-6,
        hot_spots=(HotSpot(name="aten::add", calls=1, seconds=2e-6, share=1.0),),
        roofline=Roofline(peaks=peaks, memory_seconds=8e-7, compute_seconds=0.0),
        digest_text="time per call 2.0 us; aten::add 100 %",
    )


@pytest.fixture
def recommendation() -> Recommendation:
    return Recommendation(
        bottleneck="memory", action="fuse the passes", rationale="fewer bytes", evidence="41 %", expected_gain="1.8x"
    )
