"""The benchmark of devices, as far as it goes without one: its parts through a real judge, and what it writes down."""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge.evaluation import constants
from kforge.records import EvaluationLimits

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return []
"""

RECEIPT = {
    "device": "Maker D1 (x, 2 units)",
    "versions": {"torch": "2.11"},
    "conditions": {"before timing": {"clock": "1 MHz"}},
}
ABOUT = {"date": "2026-01-02T03:04:05+00:00", "commit": "abc", "machine": "a host", "receipt": RECEIPT}
CLAIM = {"speedup": [1.5, 1.6, 1.7], "finding": "faster", "identity": "{}"}
WARM = {
    **ABOUT,
    "evaluations": 4,
    "cases": 20,
    "pairs": 16,
    "half-width": 0.008,
    "claims": {"eager": CLAIM},
    "labels": [],
    "cold seconds": 22.0,
    "cold stages": {"referee": 5.0, "build": 1.0, "compare": 9.0},
    "median seconds": 2.0,
    "slowest": 4.5,
    "stages": {"build": 0.02, "compare": 0.001},
}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Scripts of benchmarks/ find each other as they do when they are run."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


@pytest.fixture
def quick(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations that hardly time: among other tests the machine is busy, and each would go on for ten seconds."""
    short = functools.partial(EvaluationLimits, timing_seconds=0.1, timing_cap=0.2)
    monkeypatch.setattr(module("evaluator"), "EvaluationLimits", short)


@pytest.fixture
def results(module: Any) -> Any:
    return module("results")


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H200 (sm_90, 132 multiprocessors)", "h200"),
        ("NVIDIA A100-SXM4-80GB (sm_80, 108 multiprocessors)", "a100-sxm4-80gb"),
        ("Intel(R) Xeon(R) Processor, 2 threads", "xeon-processor"),
        ("Unit", "unit"),
        ("(?)", "device"),
    ],
)
def test_a_file_is_named_after_its_device(results: Any, device: str, name: str) -> None:
    assert results.slug(device) == name


def test_parts_are_merged_and_the_page_is_left_alone_around_them(results: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# By hand\n")
    kept = results.Results("Maker D1 (x)", tmp_path, page)
    kept.put("cuda", WARM)
    page.write_text(page.read_text() + "\nafter it\n")
    kept.put("fresh", {**ABOUT, "evaluations": 5, "speedups": [1.0], "furthest from the median": 0.03})
    known = json.loads((tmp_path / "d1.json").read_text())
    assert list(known["parts"]) == ["cuda", "fresh"]
    text = page.read_text()
    assert text.startswith("# By hand\n\n<!-- d1:")
    assert text.endswith("<!-- d1: end -->\n\nafter it\n")
    assert text.count("## Maker D1 (x)") == 1
    results.show(tmp_path / "d1.json", page)
    assert page.read_text() == text


def test_goals_are_held_against_what_was_measured(results: Any) -> None:
    parts = {
        "cuda": WARM,
        "fresh": {**ABOUT, "evaluations": 5, "furthest from the median": 0.03},
        "a-a": {**ABOUT, "evaluations": 100, "findings": {"cannot tell": 99, "faster": 1}},
        "faults": {
            **ABOUT,
            "faults": {"a fault": {"verdict": "died", "seconds": 1.0, "survived": True, "right after seconds": 3.0}},
        },
        "candidates": {
            **ABOUT,
            "programs": {"softmax, cuda": {"verdict": "correct", "claims": {"eager": CLAIM}, "labels": ["noisy"]}},
        },
    }
    table = results.tables({"device": "D", "parts": parts})
    assert (
        "| a program built by NVRTC, cold | 13.0 s, and 9.0 s once a problem for `torch.compile` | ≤ 15 s | yes |"
        in table
    )
    assert "| a program built by NVRTC, warm | 2.00 s (slowest of 4: 4.50 s) | ≤ 4 s | no |" in table
    assert "| its interval | ± 0.80% in 16 pairs, after 20 cases | ≤ 1% | yes |" in table
    assert "| speedup in 5 fresh runs | ± 3.00% | ≤ 2% | no |" in table
    assert "| A/A, 100 times | 99 cannot tell, 1 faster | no win | no |" in table
    assert "| a fault | died in 1.0 s, the next program right after 3.0 s | ≤ 30 s | yes |" in table
    assert "| referee | 5.000 |  |" in table
    assert "| softmax, cuda | correct | 1.6x (1.5 to 1.7): faster | not measured | noisy |" in table
    assert "- `cuda`: 2026-01-02T03:04:05+00:00; commit abc; Maker D1 (x, 2 units); a host; torch 2.11; before" in table


def test_the_goal_of_an_interval_is_the_protocols(results: Any) -> None:
    assert results.HALF_WIDTH == constants.HALF_WIDTH


def test_the_page_holds_what_is_in_the_files(results: Any, tmp_path: Path) -> None:
    """Numbers in docs are produced by a command."""
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs" / "benchmarks.md").read_text())
    for path in sorted(BENCHMARKS.glob("*.json")):
        results.show(path, page)
    assert page.read_text() == (ROOT / "docs" / "benchmarks.md").read_text()


def test_every_part_finds_its_files(module: Any) -> None:
    device = module("device")
    subject = module("evaluator").Subject
    for program, platform in (("with_cuda", "cuda"), ("with_triton", "triton"), ("with_load_inline", "cuda")):
        loaded = subject.load(device.ELEMENTWISE / "problem.py", device.ELEMENTWISE / f"{program}.py", platform)
        assert "class ModelNew" in loaded.candidate.source
    small = subject.load(device.CANDIDATES / "softmax" / "problem.py", None, "cuda", ("ROWS=1024", "COLUMNS=4096"))
    assert "ROWS = 1024" in small.problem.source
    assert all((device.EXPLOITS / "cheats" / "harness" / f"{file}.py").exists() for file in device.FAULTS.values())
    assert (device.EXPLOITS / "problems" / "large_chain.py").exists()
    assert set(module("results").EVALUATIONS) < set(device.PARTS)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_part_is_put_down_as_it_goes_on_and_a_failed_one_stops_nobody(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device, evaluator = module("device"), module("evaluator")
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "wrong.py").write_text(PROBLEM.replace("Model(", "ModelNew(").replace("relu", "tanh"))
    right = evaluator.Subject.load(tmp_path / "problem.py", None, "null")
    wrong = evaluator.Subject.load(tmp_path / "problem.py", tmp_path / "wrong.py", "null")
    put = []

    def broken(_: Any) -> Any:
        yield {"some": "of it", "receipt": RECEIPT}
        yield from evaluator.fresh(wrong, 1)

    parts = {
        "fresh": broken,
        "cuda": lambda knobs: evaluator.warm(right, knobs.warm),
        "a-a": lambda knobs: evaluator.a_against_a(right, knobs.a_a),
    }
    monkeypatch.setattr(device, "PARTS", parts)
    kept = module("results").Results("Maker D1 (x)", tmp_path, tmp_path / "page.md")
    monkeypatch.setattr(kept, "put", lambda part, section: put.append((part, section)))
    failed = device.measure(list(parts), device.Knobs(1, 1, 2, False), kept, "abc")
    assert [reason.partition(":")[0] for reason in failed] == ["fresh"]
    assert "is not correct" in failed[0]
    assert [part for part, _ in put] == ["fresh", "cuda", "cuda", "a-a", "a-a"]
    assert {section["commit"] for _, section in put} == {"abc"}
    cold, warm = put[1][1], put[2][1]
    assert set(cold) >= {"cold seconds", "cold stages", "receipt", "date", "machine"}
    assert abs(sum(cold["cold stages"].values()) - cold["cold seconds"]) < 0.02
    assert {"start", "build", "verify", "time", "compare"} <= set(warm["stages"])
    assert warm["cases"] >= 20
    assert warm["receipt"]["platform"] == "null"
    assert put[-1][1]["evaluations"] == 2
    assert sum(put[-1][1]["findings"].values()) == 2
    printed = capsys.readouterr().out
    assert "cold:\n" in printed
    assert "warm:\n" in printed
    module("results").tables({"device": "D", "parts": {"cuda": warm, "a-a": put[-1][1]}})


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_faults_are_survived_and_the_next_program_is_timed(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = module("device")
    programs = tmp_path / "cheats" / "harness"
    programs.mkdir(parents=True)
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "large_chain.py").write_text(PROBLEM)
    own = PROBLEM.replace("Model(", "ModelNew(")
    (programs / "endless.py").write_text(own.replace("return torch.relu(x)", "\n        while True: pass"))
    (programs / "dies.py").write_text(own.replace("return torch.relu(x)", "import os; os.abort()"))
    (programs / "honest.py").write_text(own)
    names = {"endless": "endless", "dies": "dies", "none": "honest"}
    for name, value in (("EXPLOITS", tmp_path), ("DEVICE_OF", "null"), ("FAULTS", names), ("FAULT_DEADLINE", 3.0)):
        monkeypatch.setattr(device, name, value)
    *_, section = device.survived(device.Knobs(1, 1, 1, False))
    told = {name: (fault["verdict"], fault["survived"], fault["tries"]) for name, fault in section["faults"].items()}
    assert told == {
        "endless": ("runtime error: timed out", True, 1),
        "dies": ("runtime error: died", True, 1),
        "none": ("correct", False, 0),
    }
    assert section["faults"]["endless"]["seconds"] >= 3.0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_device_it_is_one_line() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    command = [sys.executable, str(BENCHMARKS / "device.py"), "--only"]
    done = subprocess.run([*command, "cuda"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("nothing can be measured here: ")
    assert done.stderr.count("\n") == 1
    done = subprocess.run([*command, "cuda,none"], env=environment, capture_output=True, text=True, check=False)
    assert "no such part: none; there are cuda, triton" in done.stderr
