"""A folder with one tiny problem, and programs for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return torch.relu(x + self.shift)


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return [32]
"""


def program(result: str) -> str:
    """A program for the tiny problem whose forward returns this expression."""
    model = PROBLEM.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    return model.replace("torch.relu(x + self.shift)", result)


RIGHT = program("(x + self.shift).relu_()")
WRONG = program("torch.relu(x)")
UNCHANGED = program("torch.relu(x + self.shift)")


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """A folder with the problem `tiny`."""
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "tiny.py").write_text(PROBLEM)
    return folder
