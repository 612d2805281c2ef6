"""The ladder of profilers, with real workers behind the real border; a stand-in wraps one and prints an export."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.records import Candidate

if TYPE_CHECKING:
    from collections.abc import Callable

EXPORT = Path(__file__).parents[2] / "profiling" / "data" / "ncu_raw_softmax.csv"

MANIFEST = """
name = "watched"
title = "A platform with a profiler"
language = "PyTorch"
fence = ["python"]
device = "cpu"
facts = ["It is there."]
"""

ADAPTER = """
from contextlib import contextmanager
from pathlib import Path

from kforge import platforms
from kforge.platforms import NoProfiler, Profiler

HERE = Path(__file__).parent


def why_not(output):
    return "it is forbidden here" if "FORBIDDEN" in output else None


class Adapter(platforms.Adapter):
    def profilers(self):
        return ({rungs},)

    @contextmanager
    def recording(self):
        print("RECORDING", flush=True)
        yield
        print("RECORDED", flush=True)
"""

# as a profiler does it: the program first, and when it has ended what was seen of it
WORKS = (
    """Profiler("Stand-in", ("sh", "-c", '"$@" && cat "$0"', str(HERE / "export.csv")), why_not, {"WATCHED": "1"})"""
)
FORBIDDEN = """Profiler("Forbidden", ("sh", "-c", '"$@"; echo "$0"', "FORBIDDEN"), why_not)"""
MISSING = """NoProfiler("Missing", "it is not installed")"""
BROKEN = """Profiler("Broken", ("/no/such/profiler",), why_not)"""
SILENT = """Profiler("Silent", ("env",), why_not)"""

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
PROGRAM = PROBLEM.replace("class Model", "class ModelNew")


@pytest.fixture
def judge_of(tmp_path: Path, user_cache: Path) -> Callable[..., Judge]:
    """A judge whose platform has these rungs."""
    opened: list[Judge] = []

    def make(*rungs: str) -> Judge:
        folder = tmp_path / "platforms" / "watched"
        (folder / "example").mkdir(parents=True)
        (folder / "platform.toml").write_text(MANIFEST)
        (folder / "adapter.py").write_text(ADAPTER.replace("{rungs}", ", ".join(rungs)))
        (folder / "example" / "reference.py").write_text(PROBLEM)
        (folder / "example" / "kernel.py").write_text(PROGRAM)
        (folder / "export.csv").write_bytes(EXPORT.read_bytes())
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
        opened.append(Judge(platforms.load_folder(folder), cache=user_cache, environment=environment))
        return opened[-1]

    yield make
    for judge in opened:
        judge.close()


@pytest.fixture
def problem(tmp_path: Path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    return problems.load(tmp_path / "problem.py")


def candidate(source: str = PROGRAM) -> Candidate:
    return Candidate(source=source, platform="watched")


def test_the_best_rung_that_works_is_used(judge_of, problem) -> None:
    stages: list[str] = []
    judge = judge_of(MISSING, WORKS, BROKEN)
    judge.on_stage = stages.append
    profile = judge.profile(problem, candidate())
    assert profile.tool == "torch.profiler and Nsight Compute", "the tool is known by its export"
    assert [kernel.name for kernel in profile.kernels] == ["softmax"]
    assert profile.bottleneck == "memory bound: L2 cache at 76% of peak"
    assert "DRAM 49%, L2 76%" in profile.digest_text
    assert profile.digest_text.endswith("\nNotes\n- Not profiled with Missing (it is not installed)\n")
    assert any("relu" in spot.name for spot in profile.hot_spots), "torch's profiler has looked as well"
    assert "profiling: with Stand-in" in stages
    assert judge.profile(problem, candidate(), counters=False).tool == "torch.profiler"


def test_a_ladder_without_a_rung_that_works_says_why(judge_of, problem) -> None:
    stages: list[str] = []
    judge = judge_of(FORBIDDEN, SILENT, BROKEN)
    judge.on_stage = stages.append
    profile = judge.profile(problem, candidate())
    assert profile.tool == "torch.profiler"
    assert profile.kernels == ()
    note = profile.digest_text.splitlines()[-1]
    assert note.startswith("- Not profiled with Forbidden (it is forbidden here), nor with Silent (nothing can be read")
    stages.clear()
    judge.profile(problem, candidate())
    # the machine's fault is remembered; that one program was not seen says nothing about the next
    assert [stage for stage in stages if stage.startswith("profiling: ")] == ["profiling: with Silent"]


def test_a_program_that_fails_under_a_profiler_is_still_profiled(judge_of, problem) -> None:
    notices = "import os; assert 'WATCHED' not in os.environ; return torch.relu(x)"
    watched = PROGRAM.replace("return torch.relu(x)", notices)
    profile = judge_of(WORKS).profile(problem, candidate(watched))
    assert profile.tool == "torch.profiler"
    assert "Not profiled with Stand-in (AssertionError" in profile.digest_text


def test_only_the_calls_inside_the_recording_are_shown(judge_of, problem) -> None:
    """A stand-in that counts calls between the two marks: warm-ups and set-up are none of them."""
    counts = PROGRAM.replace("return torch.relu(x)", "print('CALL', flush=True); return torch.relu(x)")
    script = "awk '/RECORDING/{inside=1} /RECORDED/{inside=0} /CALL/ && inside {n++} END {print n}'"
    judge = judge_of("""Profiler("Counter", ("sh", str(HERE / "count.sh"), str(HERE / "export.csv")), why_not)""")
    (Path(judge.platform.folder) / "count.sh").write_text(
        f'export=$1; shift; "$@" > "$TMPDIR/out"\nn=$({script} "$TMPDIR/out")\nsed "s/softmax/seen_$n/" "$export"\n'
    )
    profile = judge.profile(problem, candidate(counts))
    assert [kernel.name for kernel in profile.kernels] == ["seen_1"]
