"""Suites in the formats of others from their files to the summary, on the null platform at tiny sizes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kforge import settings
from kforge.problems import open_suite
from kforge.run_options import RunOptions
from kforge.suite import SuiteSession

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


PROBLEM = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {result}

def get_inputs():
    return [torch.rand({rows}, 8)]

def get_init_inputs():
    return []
"""
RESULTS = ("torch.relu(x)", "x.sum(1)", "torch.softmax(x, 1)", "x @ x.T", "torch.nn.functional.dropout(x)")
BROKEN = {
    "level1/7_Broken": "problem: 7_Broken: forward fails: RuntimeError",
    "level2/8_Broken": "does not define get_inputs at module level",
    "level2/9_Broken": "is not valid Python: line 1",
}
ORIGINAL = """\
import torch

class ModelNew(torch.nn.Module):
    def forward(self, *arguments):
        return {result}
"""


@pytest.fixture
def work(tmp_path: Path, clean_environment: dict[str, str]) -> Callable[..., SuiteSession]:
    """Work on a suite with a model that answers with this program, and return the finished session."""

    def run(folder: Path, program: str = "") -> SuiteSession:
        chosen = settings.load(clean_environment | {"KFORGE_RUNS": str(tmp_path / "runs")})
        script = tmp_path / "script.json"
        script.write_text(json.dumps([{"text": f"```python\n{program}```"}] if program else []))
        options: dict[str, Any] = {"platform": "null", "compile_baseline": False, "replications": 0, "iterations": 1}
        model = f"scripted:{script}"
        session = SuiteSession.begin(
            open_suite(str(folder)),
            RunOptions.model_validate({**options, "model": model, "analyst": model}),
            chosen,
            root=chosen.runs,
        )
        for _ in session.work():
            pass
        return session

    return run


def write_kernelbench(folder: Path, count: int) -> None:
    """Write problems of two levels, three of them broken in different ways."""
    for index in range(count - 3):
        level, number = index % 2 + 1, index // 2 + 10
        path = folder / f"KernelBench/level{level}/{number}_Kernel.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROBLEM.format(result=RESULTS[index % len(RESULTS)], rows=2 + index % 7))
    level1, level2 = (folder / f"KernelBench/level{level}" for level in (1, 2))
    (level1 / "7_Broken.py").write_text(PROBLEM.format(result="x @ torch.ones(3)", rows=2))
    (level2 / "8_Broken.py").write_text("class Model: ...\ndef get_init_inputs(): ...\n")
    (level2 / "9_Broken.py").write_text("def (\n")


def check_kernelbench(session: SuiteSession, count: int) -> None:
    broken = {result.name: str(result.reason) for result in session.results if result.state == "broken"}
    assert broken.keys() == BROKEN.keys()
    assert all(BROKEN[name] in reason for name, reason in broken.items())
    assert all("\n" not in reason for reason in broken.values())
    others = [result.state for result in session.results if result.state != "broken"]
    assert others == ["no_attempt"] * (count - 3), "a broken problem stopped others"


def test_three_broken_problems_of_eight_are_three_clear_failures(
    tmp_path: Path, work: Callable[..., SuiteSession]
) -> None:
    write_kernelbench(tmp_path / "theirs", 8)
    check_kernelbench(work(tmp_path / "theirs"), 8)


@pytest.mark.volume
def test_three_broken_problems_of_fifty_are_three_clear_failures(
    tmp_path: Path, work: Callable[..., SuiteSession]
) -> None:
    write_kernelbench(tmp_path / "theirs", 50)
    check_kernelbench(work(tmp_path / "theirs"), 50)
