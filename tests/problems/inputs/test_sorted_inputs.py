"""Inputs in ascending order that a module sorts all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from kforge import problems
from kforge.problems.inputs.sorted_inputs import in_any_order, sorted_inputs, unordered
from kforge.problems.instance import Instance, instantiate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, times):
        {body}

def get_inputs():
    return [torch.randn(8, 32), {times}]

def get_init_inputs():
    return []
"""
TIMES = "torch.rand(8, 32).cumsum(-1)"


def instance_of(folder: Path, body: str, times: str = TIMES) -> Instance:
    path = folder / "problem.py"
    path.write_text(SOURCE.format(body=body, times=times))
    return instantiate(problems.load(path))


def found(instance: Instance) -> list[int]:
    return sorted_inputs(instance, instance.inputs(1), instance.structure)


@pytest.mark.parametrize(
    ("body", "times", "places"),
    [
        ("return times.sort(-1).values + x", TIMES, [1]),
        ("return torch.argsort(times, dim=-1) + x", TIMES, [1]),
        ("return torch.topk(input=times.view(-1), k=3).values", TIMES, [1]),
        ("return torch.msort(times.mT)", TIMES, [1]),
        ("return times.sort(-1).values * x", "torch.randint(0, 5, (8, 32)).cumsum(-1)", [1]),
        ("return torch.unique(times, return_inverse=True)[1] + x", "torch.arange(32) * torch.randint(1, 5, ())", [1]),
        ("return torch.median(times, -1).values + times.kthvalue(2).values", TIMES, [1]),
        ("return torch.quantile(times, 0.5, dim=-1)", TIMES, [1]),
        ("return torch.searchsorted(x.sort(-1).values, times)", TIMES, [1]),  # the values may be in any order
        ("return torch.bucketize(times, boundaries=x[0].sort().values)", TIMES, [1]),
        ("return times.amax(-1) - times.amin(-1)", TIMES, [1]),
        ("return torch.cummax(times, -1).values + x", TIMES, [1]),
        ("return x / torch.max(times) + times.argmax(-1, keepdim=True)", TIMES, [1]),
        ("return torch.bucketize(x / times.max(), x[0].sort().values)", TIMES, []),  # which could be made of the times
        ("return torch.searchsorted(times / times.max(), x)", TIMES, []),
        ("return torch.searchsorted(times, x) / times.amax(-1, keepdim=True)", TIMES, []),
        ("return torch.bucketize(x, times[0])", TIMES, []),
        ("return torch.unique_consecutive(times)", TIMES, []),  # which depends on the order
        ("return x.sort(-1).values + times", TIMES, []),  # another one is sorted
        ("return times.sort(-1).values + x", "torch.rand(8, 32)", []),  # not in order
        ("return nn.functional.max_pool1d(times, 4)", TIMES, [1]),
        ("return nn.functional.adaptive_max_pool1d(times, 4, return_indices=True)[0]", TIMES, [1]),
        ("return (2 * times - x[0, 0]).sort(-1).values", TIMES, [1]),  # shifted and scaled
        ("return torch.searchsorted(2 * times, x) + times.sort(-1).values", TIMES, []),
        ("return torch.searchsorted(times, x)", TIMES, []),
        ("return torch.searchsorted(times, x) + times.sort(-1).values", TIMES, []),  # which needs the order
        ("return (times * x).sort(-1).values", TIMES, []),  # what is sorted is in no order
    ],
)
def test_an_input_in_order_is_found_where_the_module_sorts_it(
    tmp_path: Path, body: str, times: str, places: list[int]
) -> None:
    assert found(instance_of(tmp_path, body, times)) == places


def test_a_module_that_fails_sorts_nothing(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "times.sort(-1); raise ValueError")
    assert found(instance) == []


def test_only_the_order_within_rows_changes(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "return times.sort(-1).values + x")
    given = instance.inputs(1)
    same, fresh = unordered(given, torch.Generator().manual_seed(1), instance.structure, [1])
    assert same is given[0]
    assert torch.equal(fresh.sort(-1).values, given[1])
    assert not torch.equal(fresh, given[1])


class Levels(nn.Module):
    def __init__(self, call: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.register_buffer("levels", torch.linspace(-1, 1, 8))
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.levels, Tensor)
        return self.call(x, self.levels)


@pytest.mark.parametrize(
    ("call", "free"),
    [
        (lambda x, levels: (x[..., None] - levels).abs().argmin(-1), True),
        (lambda x, levels: torch.bucketize(x, levels), False),
        (lambda x, levels: torch.bucketize(x, 2 * levels), False),
        (lambda x, levels: torch.bucketize(x, (levels[1:] + levels[:-1]) / 2), False),
        (lambda x, levels: torch.searchsorted(levels, x), False),
        (lambda x, levels: torch.histogram(x, levels).hist, False),
        (lambda x, levels: torch.bucketize(levels, x), True),  # the input is in order
    ],
)
def test_a_buffer_may_be_in_any_order_where_nothing_is_looked_up_in_it(
    call: Callable[[Tensor, Tensor], Tensor], free: bool
) -> None:
    assert in_any_order(Levels(call), [torch.rand(4).sort().values], ["levels"]) == ({"levels"} if free else set())
