"""Many products of tiny matrices: every layout, sizes that no vector has, and tails."""

from __future__ import annotations

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
        self.row = nn.Parameter(torch.randn(11))

    def forward(self, left, right, eights, wide, heads):
        return {forward}

def get_inputs():
    return [torch.randn(70, 9, 5), torch.randn(70, 5, 11), torch.randn(64, 8, 8), torch.randn(65, 16, 16),
            torch.randn(8, 3, 9, 4)]

def get_init_inputs():
    return []
"""
TINY = {
    "odd sizes": "left @ right",
    "whole vectors": "torch.bmm(eights, eights)",
    "two blocks of rows": "wide @ wide",
    "left transposed": "eights.mT @ eights",
    "right transposed": "left @ left.mT",
    "both transposed": "right.mT @ left.mT",
    "several axes of batches": "heads.expand(8, 3, 9, 4).permute(2, 0, 1, 3) @ heads.permute(2, 0, 3, 1)",
    "one row": "left[:, :1] @ right",
    "one column": "left @ right[:, :, :1]",
    "part of the inner places": "left[:, :, 1:4] @ right[:, 1:4]",
    "tail": "torch.relu(left @ right) * 2 + self.row",
    "tail with another tensor": "eights @ eights - eights",
    "softmax": "torch.softmax(wide @ wide.mT, -1)",
}
LEFT_ALONE = ("left[:5] @ right[:5]", "heads @ heads.mT.repeat(1, 1, 1, 2)[..., :9]", "left[0] @ right[0]")
"""Few, or not that tiny."""


def loaded(folder: Path, *forward: str) -> tuple[Instance, Graph]:
    path = folder / "problem.py"
    path.write_text(PROBLEM.format(forward=", ".join(forward)))
    instance = instantiate(problems.load(path))
    return instance, trace(instance)


def test_they_are_as_exact_as_the_librarys(tmp_path: Path, as_exact_as_the_library: Any) -> None:
    instance, graph = loaded(tmp_path, *TINY.values())
    source = write(instance.problem, graph, Cpp(), CppPlan()).source
    assert source.count("    tiny_product<") == len(TINY), "nothing is left to torch"
    as_exact_as_the_library(instance, source, TINY)


@pytest.mark.parametrize("forward", LEFT_ALONE)
def test_what_is_few_or_large_is_left_to_the_library(tmp_path: Path, forward: str) -> None:
    instance, graph = loaded(tmp_path, forward)
    assert "tiny_product" not in write(instance.problem, graph, Cpp(), CppPlan()).source
