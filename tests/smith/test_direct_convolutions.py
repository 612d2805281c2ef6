"""Convolutions that are added up directly: every rank, stride, hole and group, sizes that no vector has, and tails."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from kforge import problems
from kforge.problems.instance import instantiate
from kforge.smith.frontend.trace import trace
from kforge.smith.languages.cpp import Cpp
from kforge.smith.languages.cpp.plan import CppPlan
from kforge.smith.program import write

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.problems.instance import Instance
    from kforge.smith.ir.graph import Graph

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([{layers}])

    def forward(self, line, image, volume):
        return {forward}

def get_inputs():
    return [torch.randn(3, 12, 137), torch.randn(2, 12, 9, 11), torch.randn(1, 6, 5, 4, 7)]

def get_init_inputs():
    return []
"""
DIRECT = {
    "over time": ("line", "nn.Conv1d(12, 7, 3, padding=1)"),
    "with holes": ("line", "nn.Conv1d(12, 5, 4, dilation=3, bias=False)"),
    "in groups": ("line", "nn.Conv1d(12, 9, 3, groups=3)"),
    "of an image": ("image", "nn.Conv2d(12, 13, 3, padding=1)"),
    "of an image, lopsided": ("image", "nn.Conv2d(12, 6, (2, 5), padding=(1, 3), dilation=(3, 1), groups=2)"),
    "one by one": ("image", "nn.Conv2d(12, 3, 1)"),
    "of a volume": ("volume", "nn.Conv3d(6, 8, 3, padding=1)"),
    "of a volume, in groups": ("volume", "nn.Conv3d(6, 4, (1, 3, 2), groups=2, padding=(0, 1, 1))"),
    "transposed over time": ("line", "nn.ConvTranspose1d(12, 12, 5, stride=2, dilation=2, groups=4)"),
    "transposed, doubling": ("image", "nn.ConvTranspose2d(12, 8, 4, stride=2, padding=1)"),
    "transposed, with a step of one": ("image", "nn.ConvTranspose2d(12, 7, 3, padding=1)"),
    "transposed, steps wider than the window": ("image", "nn.ConvTranspose2d(12, 4, 2, stride=3, output_padding=1)"),
    "transposed, lopsided": (
        "image",
        "nn.ConvTranspose2d(12, 10, (3, 5), stride=(3, 2), padding=(2, 1), output_padding=(1, 0), bias=False)",
    ),
    "transposed, steps of sixteen": ("image", "nn.ConvTranspose2d(12, 3, 32, stride=16, padding=8)"),
    "transposed volume": ("volume", "nn.ConvTranspose3d(6, 5, 3, stride=2, padding=1, output_padding=1)"),
    "transposed volume in groups": ("volume", "nn.ConvTranspose3d(6, 6, (2, 3, 3), stride=(1, 2, 3), groups=3)"),
}
LEFT_ALONE = {
    "with steps": ("line", "nn.Conv1d(12, 7, 3, stride=2)"),
    "every channel by itself": ("image", "nn.Conv2d(12, 12, 3, groups=12)"),
    "many channels": ("image.repeat(1, 3, 1, 1)", "nn.Conv2d(36, 4, 3)"),
    "many channels, transposed": ("image.repeat(1, 6, 1, 1)", "nn.ConvTranspose2d(72, 4, 3)"),
}


def loaded(folder: Path, calls: list[tuple[str, str]], tails: tuple[str, ...] = ("{}",)) -> tuple[Instance, Graph]:
    """A module of all calls, whose results the tails are applied to in turn."""
    path = folder / "problem.py"
    given = zip(itertools.cycle(tails), enumerate(calls), strict=False)
    forward = (tail.format(f"self.layers[{number}]({x})") for tail, (number, (x, _)) in given)
    path.write_text(PROBLEM.format(layers=", ".join(layer for _, layer in calls), forward=", ".join(forward)))
    instance = instantiate(problems.load(path))
    return instance, trace(instance)


TAILS = ("{}", "torch.relu({}) * 2 + 1")


@pytest.mark.parametrize("tails", [TAILS, *(pytest.param((tail,), marks=pytest.mark.volume) for tail in TAILS)])
def test_they_are_as_exact_as_the_librarys(
    tmp_path: Path, as_exact_as_the_library: Any, tails: tuple[str, ...]
) -> None:
    instance, graph = loaded(tmp_path, list(DIRECT.values()), tails)
    source = write(instance.problem, graph, Cpp(), CppPlan()).source
    assert source.count("    DirectConvolution<") == len(DIRECT), "nothing is left to torch"
    assert source.count('extern "C"') == len(DIRECT), "a tail is a part of its kernel"
    as_exact_as_the_library(instance, source, DIRECT)


@pytest.mark.parametrize("call", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_the_library_does_as_well_is_left_to_it(tmp_path: Path, call: tuple[str, str]) -> None:
    instance, graph = loaded(tmp_path, [call])
    assert "DirectConvolution" not in write(instance.problem, graph, Cpp(), CppPlan()).source
