"""Products of matrices on a processor's matrix unit: every layout, sizes that do not fit its tiles, and tails."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from kforge import problems
from kforge.platforms import host
from kforge.problems.instance import instantiate
from kforge.smith.frontend.trace import trace
from kforge.smith.languages.cpp import Cpp
from kforge.smith.languages.cpp.plan import MOVES, CppPlan
from kforge.smith.program import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.problems.instance import Instance
    from kforge.smith.ir.graph import Graph

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(70, 45)
        self.bias = nn.Parameter(torch.randn(45))
        self.line = nn.Conv1d(5, 40, 3, dilation=2)
        self.image = nn.Conv2d(32, 33, 3, padding=1)
        self.steps = nn.Conv2d(32, 9, (3, 2), stride=(2, 1), padding=(1, 0), bias=False)
        self.volume = nn.Conv3d(8, 12, (2, 3, 3), padding=(0, 1, 1))
        self.point = nn.Conv2d(32, 16, 1)

    def forward(self, a, b, c, d, tokens, heads, left, right, shared, long, wide, signal, picture, body):
        return {forward}

def get_inputs():
    return [torch.randn(33, 70), torch.randn(70, 45), torch.randn(70, 33), torch.randn(45, 70), torch.randn(3, 70, 11),
            torch.randn(2, 9, 3, 40), torch.randn(5, 33, 40), torch.randn(5, 40, 35), torch.randn(33, 33),
            torch.randn(40, 1000), torch.randn(40, 600), torch.randn(3, 5, 50), torch.randn(2, 32, 11, 19),
            torch.randn(2, 8, 5, 6, 7)]

def get_init_inputs():
    return []
"""
CASES = {
    "plain": "a @ b",
    "whole tiles": "long[:32, :64] @ wide.t()[:64, :96]",
    "one row": "a[:1, :5] @ b[:5, :3]",
    "long sums": "long @ long.t()",
    "several blocks": "wide.t() @ wide",
    "left transposed": "c.t() @ b",
    "right transposed": "a @ d.t()",
    "both transposed": "c.t() @ d.t()",
    "linear": "self.linear(a)",
    "linear of what is permuted": "self.linear(tokens.transpose(1, 2))",
    "batches": "torch.bmm(left, right)",
    "heads": "heads.transpose(1, 2) @ heads.permute(0, 2, 3, 1)",
    "added": "torch.addmm(self.bias, a, b)",
    "tail": "torch.relu(self.linear(a)) * 2",
    "tail with a row of its own": "torch.sigmoid(a @ b + self.bias) * self.bias",
    "tail with another tensor": "d[:, :33].t() - self.linear(a)",
    "tail that each batch shares": "left @ left.mT * 0.5 + shared",
    "tail of two": "self.linear(a) * torch.sigmoid(a @ b + 1)",
    "tail that turns it": "(self.linear(a).t() + d[:, :33]) * 2",
    "row sums": "torch.softmax(a @ d.t(), -1)",
    "convolution of a line": "self.line(signal)",
    "convolution of an image": "self.image(picture)",
    "convolution in steps": "self.steps(picture)",
    "convolution of a volume": "self.volume(body)",
    "convolution of points": "self.point(picture)",
    "convolution of what is permuted": "self.image(picture.transpose(2, 3))",
    "convolution with a tail": "torch.relu(self.image(picture) * 0.5) + picture.mean()",
    "convolution with a tail in steps": "torch.sigmoid(self.steps(picture)) * self.bias[:9, None, None]",
    "two convolutions": "self.point(torch.relu(self.image(picture)[:, :32]))",
}


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Instance]:
    def load(forward: str) -> Instance:
        path = tmp_path_factory.mktemp("problem") / "problem.py"
        path.write_text(PROBLEM.format(forward=forward))
        return instantiate(problems.load(path))

    return load


@pytest.fixture(scope="module")
def all_cases(load: Callable[[str], Instance]) -> tuple[Instance, Graph]:
    """In one program, since tracing and compiling take longer than the products."""
    instance = load(", ".join(CASES.values()))
    return instance, trace(instance)


def written(instance: Instance, graph: Graph, matrix: int) -> str:
    return write(instance.problem, graph, Cpp(), CppPlan(matrix=matrix)).source


def own_kernels(source: str) -> int:
    return source.count("    matrix_product<") + source.count("    Convolution<")


def test_every_product_is_written(all_cases: tuple[Instance, Graph]) -> None:
    everything = written(*all_cases, matrix=3)
    assert own_kernels(everything) >= len(CASES)
    assert not re.search(r"= (F\.|torch\.(matmul|mm|bmm|addmm|conv))", everything), "nothing is left to torch"
    assert own_kernels(written(*all_cases, matrix=0)) == 0


@pytest.mark.skipif(host.MATRIX_UNIT not in host.features(), reason=f"this processor has no {host.MATRIX_UNIT}")
def test_products_are_as_exact_as_single_precision(
    all_cases: tuple[Instance, Graph], as_exact_as_the_library: Any
) -> None:
    instance, graph = all_cases
    as_exact_as_the_library(instance, written(instance, graph, matrix=3), CASES)


def test_a_small_product_is_left_to_the_library(load: Callable[[str], Instance]) -> None:
    instance = load("a @ b, (wide.t() @ wide) @ (wide.t() @ wide)")
    source = written(instance, trace(instance), matrix=2)
    assert "matrix_product<1, 600, 600, 600>" in source
    assert "= torch.matmul(a, b)" in source


def test_only_a_processor_with_the_unit_is_given_it() -> None:
    assert CppPlan.first(frozenset({host.MATRIX_UNIT})).matrix == 1
    assert CppPlan.first(frozenset({"avx512f"})).matrix == 0
    simpler = CppPlan(matrix=1).simpler()
    assert simpler is not None
    assert (simpler.matrix, simpler.algebra) == (0, 1), "a program that fails is tried without it first"


def test_no_move_gives_the_unit_to_a_processor_without_it() -> None:
    assert all(not move.from_none for move in MOVES if move.knob == "matrix" and move.value)
