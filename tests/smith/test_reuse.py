"""Maps that are written over what a library has just computed, and those that must not be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge import problems
from kforge.problems.instance import instantiate
from kforge.smith.frontend.trace import trace
from kforge.smith.languages.cpp import Cpp
from kforge.smith.languages.cpp.plan import CppPlan
from kforge.smith.program import write

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.problems.instance import Instance

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 40)
        self.square = nn.Linear(24, 24)
        self.conv = nn.Conv1d(24, 70, 3, stride=2)

    def forward(self, x, rows):
        return {forward}

def get_inputs():
    return [torch.randn(5, 24, 33), torch.randn(30, 24)]

def get_init_inputs():
    return []
"""
OVERWRITTEN = {
    "one map": "torch.relu(self.linear(rows))",
    "read twice": "self.linear(rows) * torch.sigmoid(self.linear(rows))",
    "another tensor beside it": "self.square(rows) + rows",
    "two results": "self.square(rows) * torch.tanh(rows @ self.square.weight)",
    "a convolution": "torch.relu(self.conv(x)) * 2",
    "another shape": "torch.relu(self.linear(rows).reshape(10, 3, 40))",
}
LEFT_ALONE = {
    "it is returned as well": "*(lambda y: (y, torch.relu(y)))(self.linear(rows))",
    "a product reads it as well": "(lambda y: torch.relu(y) @ y.mT)(self.linear(rows))",
    "a view of it is read by another": "(lambda y: torch.relu(y) @ y.reshape(40, 30))(self.linear(rows))",
    "read in another order": "(lambda y: y + y.mT)(self.square(rows[:24]))",
    "the result is larger": "self.linear(rows)[:, None, :] + self.linear(rows)[None]",
    "an input": "torch.relu(rows)",
    "rows are summed": "torch.softmax(self.linear(rows), -1)",
}
AFTERWARDS = "rows * 2"
"""What was given is still there."""


def written(folder: Path, forward: str) -> tuple[Instance, str]:
    path = folder / "problem.py"
    path.write_text(PROBLEM.format(forward=forward))
    instance = instantiate(problems.load(path))
    return instance, write(instance.problem, trace(instance), Cpp(), CppPlan()).source


def test_what_is_written_over_is_as_exact(tmp_path: Path, as_exact_as_the_library: Any) -> None:
    instance, source = written(tmp_path, ", ".join(OVERWRITTEN.values()))
    assert source.count(".detach().contiguous()") == len(OVERWRITTEN)
    as_exact_as_the_library(instance, source, OVERWRITTEN)


@pytest.mark.parametrize("forward", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_somebody_else_reads_is_not_written_over(
    tmp_path: Path, as_exact_as_the_library: Any, forward: str
) -> None:
    instance, source = written(tmp_path, f"{forward}, {AFTERWARDS}")
    assert ".detach()" not in source
    as_exact_as_the_library(instance, source, [forward] * (forward.startswith("*") + 1) + ["afterwards"])


def test_a_result_has_no_gradients_of_what_was_there_before(tmp_path: Path, as_exact_as_the_library: Any) -> None:
    instance, source = written(tmp_path, f"{OVERWRITTEN['one map']}, {AFTERWARDS}")
    as_exact_as_the_library(instance, source, ["one map", "afterwards"])
    program: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, "program.py", "exec"), program)
    with torch.enable_grad():
        result, _ = program["ModelNew"]()(*instance.inputs(0))
    assert not result.requires_grad
