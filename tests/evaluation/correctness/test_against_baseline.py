"""Outputs beside the baseline's: a limit for each tensor, from torch's own error on the same inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge import problems
from kforge.evaluation.correctness.against_baseline import Beside
from kforge.evaluation.reference.reference import Reference
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        return torch.sin(x @ self.weight), (x @ self.weight).argmax(-1)

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def reference(tmp_path: Path) -> Reference:
    (tmp_path / "problem.py").write_text(PROBLEM)
    return Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)


def judged(reference: Reference, inputs: list[torch.Tensor], output: Any, most: float = 0.0) -> str:
    expected = reference.own_result(inputs)
    found = Beside(reference, inputs, "strict", most).differs(expected, output, "a timed call")
    return "agrees" if found is None else found.reason


def in_two_sums(reference: Reference, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weight = reference.model.weight.detach()
    product = x[:, :32] @ weight[:32] + x[:, 32:] @ weight[32:]
    return torch.sin(product), product.argmax(-1)


@pytest.mark.parametrize("size", [1.0, 3000.0])
def test_rounding_passes_where_torch_rounds_as_much(reference: Reference, size: float) -> None:
    inputs = [size * torch.randn(32, 64)]
    assert judged(reference, inputs, in_two_sums(reference, *inputs)) == "agrees"


def test_a_lax_case_makes_no_other_lax(reference: Reference) -> None:
    inputs = [torch.randn(32, 64)]
    sines, places = in_two_sums(reference, *inputs)
    assert "tensor 0" in judged(reference, inputs, (sines + 0.01, places), most=1.0)


def test_integers_have_no_tolerance_and_are_judged_beside_numbers_that_are_off(reference: Reference) -> None:
    inputs = [3000 * torch.randn(32, 64)]  # the sines of which are off by more than the floor
    sines, places = in_two_sums(reference, *inputs)
    places = places.clone()
    places[3] = (places[3] + 1) % 64
    assert "tensor 1" in judged(reference, inputs, (sines, places), most=1.0)


def test_the_copies_leave_the_reference_as_it_was(reference: Reference) -> None:
    inputs = [torch.randn(32, 64)]
    before = int(reference.model.calls)
    assert reference.truth_of_copies(inputs) is not None
    assert int(reference.model.calls) == before
