"""Tracing: large workloads are written down without their values, and what asks for values gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from kforge import platforms, problems
from kforge.problems.instance import instantiate
from kforge.problems.live.module import from_module
from kforge.smith.brain import Smith
from kforge.smith.frontend.trace import trace

if TYPE_CHECKING:
    from pathlib import Path

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
    monkeypatch.setattr("kforge.smith.frontend.trace.LARGE", 0)
    assert traced(tmp_path, rows=4, asked="assert float(x[0, 0]) == float(x[0, 0])") == small
    assert traced(tmp_path, rows=4) == small


@pytest.mark.parametrize(
    "body",
    [
        "x[x > 0]",
        "x.masked_select(x > 0).sum()",
        "x.nonzero()",
        "torch.unique(x)",
        "x * x.sum().item()",
        "x[: int((x[:, 0] > 0).sum())]",
        "torch.zeros(int(x[0, 0].abs()) + 1) + 1",
        "{'a': x}",
        "[x, [x + 1]]",
        "x.to_sparse().to_dense() * 2",
        "torch.fft.rfft(x)",
        "torch.linalg.svd(x)[1]",
        "x.abs().sqrt().to(torch.complex64).real",
    ],
)
def test_what_is_unusual_is_traced_or_said_to_be(tmp_path: Path, body: str) -> None:
    """Then the module stays as it is: nothing that torch runs stops a run."""
    path = tmp_path / "problem.py"
    path.write_text(
        PROBLEM.replace("1 << 20", "8").replace("ASKED", "").replace("torch.softmax(x * self.weight, -1).sum(-1)", body)
    )
    problem = problems.load(path)
    smith = Smith(platforms.find("cpu"))
    answer = smith.write(problem, instantiate(problem).describe())
    assert "class ModelNew" in answer.candidate.source


def test_outputs_keep_their_structure(tmp_path: Path) -> None:
    class Several(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"y": torch.relu(x) * 2, "rest": [x + 1, None, (x.sum(-1), 3)]}

    problem = from_module(Several(), torch.randn(4, 8), name="several", folder=tmp_path)
    answer = Smith(platforms.find("cpu")).write(problem, instantiate(problem).describe())
    assert answer.candidate is not None
    written: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(answer.candidate.source, "candidate.py", "exec"), written)
    assert 'extern "C"' in answer.candidate.source
    x = torch.randn(4, 8)
    torch.testing.assert_close(written["ModelNew"]()(x), Several()(x))
