"""Problem files, written to a temporary folder."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from kforge.problems import load
from kforge.problems.instance import Instance, instantiate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = """\
# A comment that stays.
import torch
from torch import nn

ROWS = 4  # rows of the input
COLUMNS: int = ROWS * 2
PAIR = (1,
        2)


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a problem file; without a text, a small correct one."""

    def writer(text: str = SMALL, name: str = "small.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    return writer


@pytest.fixture
def instance_of(write: Callable[..., Path]) -> Callable[..., Instance]:
    """Instantiate a problem given by the parts that differ from a correct one."""

    def maker(
        *,
        top: str = "",
        init: str = "pass",
        forward: str = "return x * 2",
        inputs: str = "[torch.randn(3, 4)]",
        init_inputs: str = "[]",
        init_parameters: str = "",
    ) -> Instance:
        text = f"""\
import torch
from torch import nn
{textwrap.dedent(top)}
class Model(nn.Module):
    def __init__(self{init_parameters}):
        super().__init__()
        {init}
    def forward(self, x):
        {forward}
def get_inputs():
    return {inputs}
def get_init_inputs():
    return {init_inputs}
"""
        return instantiate(load(write(text)))

    return maker
