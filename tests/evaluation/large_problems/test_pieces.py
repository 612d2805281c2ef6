"""Cutting a case into pieces: only where every part of the batch is computed by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from kforge.errors import ProblemError
from kforge.evaluation.large_problems.pieces import Cut, find_cut, holds_for

if TYPE_CHECKING:
    from collections.abc import Callable


def run(module: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    def call(inputs: list[Any]) -> Any:
        try:
            with torch.no_grad():
                return module(*inputs)
        except (RuntimeError, ValueError) as error:
            raise ProblemError(str(error)) from error

    return call


@pytest.mark.parametrize(
    ("module", "shapes", "dim"),
    [
        (torch.relu, [(64,)], 0),
        (lambda x: torch.softmax(x, -1), [(64, 33)], 0),
        (lambda x: torch.softmax(x, 0), [(64, 33)], 1),
        (nn.Linear(33, 17), [(64, 33)], 0),
        (nn.BatchNorm1d(33).eval(), [(64, 33)], 0),
        (lambda a, b: a @ b, [(33, 33), (33, 33)], 0),
        (lambda a, b: {"sum": a + b, "most": a.argmax(-1)}, [(64, 33), (64, 33)], 0),
        (lambda x, bias: x + bias, [(64, 33), (33,)], 0),
        (lambda x: x.cumsum(0), [(64, 33)], 1),
        (nn.Conv2d(3, 4, 3), [(8, 3, 9, 9)], 0),
    ],
)
def test_independent_samples_are_found(module: Any, shapes: list[tuple[int, ...]], dim: int) -> None:
    cut = find_cut(run(module), [torch.randn(shape) for shape in shapes])
    assert cut is not None
    assert cut.dim == dim


@pytest.mark.parametrize(
    "module",
    [
        nn.BatchNorm1d(33, track_running_stats=False),
        lambda x: x - x.mean(),
        lambda x: x / x.abs().max(),
        lambda x: x.flip(0).flip(1),
        lambda x: x.sum(),
        lambda x: x @ x.T @ x,
        lambda x: x.cumsum(0).cumsum(1),
        lambda x: (x, 3),
    ],
)
def test_coupled_samples_are_not_cut(module: Any) -> None:
    for _ in range(5):
        assert find_cut(run(module), [torch.randn(64, 33)]) is None


def test_pieces_cover_everything_once() -> None:
    cut = Cut(0, 10, only_first=False).into(4)
    value = torch.arange(10.0)
    assert torch.equal(torch.cat([cut.output(value, *bounds) for bounds in cut.ranges()]), value)
    assert len(Cut(0, 3, only_first=False).into(99).ranges()) == 3


def test_only_the_tensors_of_that_size_are_cut() -> None:
    cut = Cut(0, 8, only_first=False)
    part = cut.inputs([torch.zeros(8, 2), {"weight": torch.zeros(2, 8)}, 3], 2, 5)
    assert [tuple(part[0].shape), tuple(part[1]["weight"].shape), part[2]] == [(3, 2), (2, 8), 3]


def test_a_cut_holds_only_for_inputs_that_it_is_tried_on() -> None:
    def clipped(x: torch.Tensor) -> torch.Tensor:
        return x * torch.clamp(1e4 / torch.linalg.vector_norm(x), max=1.0)

    x = torch.randn(64, 33)
    cut = find_cut(run(clipped), [x.clone()])
    assert cut is not None
    assert holds_for(cut, run(clipped), [x])
    assert not holds_for(cut, run(clipped), [1000 * x])
