"""Tracing: large workloads are written down without their values, and what asks for values gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge import problems
from kforge.problems.instance import instantiate
from kforge.smith.trace import trace

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PROBLEM = """
import torch
from torch import nn

ROWS = 4

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1 << 20))

    def forward(self, x):
        return torch.softmax(x * self.weight, -1).sum(-1)

def get_inputs():
    x = torch.randn(ROWS, 1 << 20)
    ASKED
    return [x]

def get_init_inputs():
    return []
"""


def traced(folder: Path, rows: int, asked: str = "") -> list[tuple[object, ...]]:
    path = folder / "problem.py"
    path.write_text(PROBLEM.replace("ASKED", asked))
    graph = trace(instantiate(problems.load(path, overrides=(f"ROWS={rows}",))))
    return [(node.name, node.kind, node.inputs, len(node.shape), node.axes) for node in graph]


def test_what_no_memory_would_hold_is_traced(tmp_path: Path) -> None:
    assert traced(tmp_path, rows=1 << 20) == traced(tmp_path, rows=4)  # 4 TB, and 16 MB


def test_a_large_problem_that_asks_for_values_gets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = traced(tmp_path, rows=4)
    monkeypatch.setattr("kforge.smith.trace.LARGE", 0)
    assert traced(tmp_path, rows=4, asked="assert float(x[0, 0]) == float(x[0, 0])") == small
    assert traced(tmp_path, rows=4) == small
