"""What plans are worth: that every kind of program is timed, and what is not is said."""

from __future__ import annotations

import json
import runpy
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(96))

    def forward(self, x):
        return BODY

def get_inputs():
    return [torch.randn(32, 96)]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def main(root: Path) -> Any:
    return runpy.run_path(str(root / "benchmarks" / "plans.py"))["main"]


def test_plans_are_compared(main: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "softmax.py").write_text(PROBLEM.replace("BODY", "torch.softmax(x * self.weight, -1)"))
    (suite / "cut.py").write_text(PROBLEM.replace("BODY", "x[x > 0]"))
    (suite / "broken.py").write_text("class Model(")
    kept = tmp_path / "plans.json"
    assert main(["-p", "cpu", "--suite", str(suite), "--plan", "threads=64", "--json", str(kept)]) == 0
    said = json.loads(kept.read_text())
    rows = {row["problem"].rpartition("/")[2]: row for row in said["problems"]}
    assert {"eager", "first", "threads=64"} <= set(rows["softmax"]["microseconds"]), "a plan that --plan names is there"
    assert all(value > 0 for value in rows["softmax"]["microseconds"].values())
    assert rows["softmax"]["bytes"] == 4 * (2 * 32 * 96 + 96)
    assert rows["cut"]["untraceable"] == "the size of a tensor depends on the values of another tensor"
    told = capsys.readouterr().out
    assert "broken" in told
    assert "1.00x  eager" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-p", "none"], "plans: "),
        (["-p", "null"], "plans: the smith writes no kernels for the platform 'null'"),
        (["-p", "cpu", "--plan", "speed=11"], "plans: 'speed=11' is no plan: KNOB=VALUE"),
        (["-p", "cpu", "--plan", "tile=much"], "plans: 'tile=much' is no plan: KNOB=VALUE"),
    ],
)
def test_bad_input_is_one_line(main: Any, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith(words)
    assert said.count("\n") == 1
