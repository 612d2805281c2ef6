"""Who is not blamed for what rounding alone does to a case, and who is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from kforge import problems
from kforge.evaluation.conditioning import excused
from kforge.evaluation.reference import Reference
from kforge.evaluation.verify import compare
from kforge.problems.instance import instantiate
from kforge.records import Mismatch

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.evaluation.verify import Truth

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, query, key, value):
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        return torch.softmax(scores, dim=-1) @ value{more}

def get_inputs():
    return [torch.randn(2, 4, 160, 48) for _ in range(3)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def reference(tmp_path: Path) -> Reference:
    (tmp_path / "problem.py").write_text(PROBLEM.format(more=""))
    return Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)


def far_below_zero(seed: int) -> list[torch.Tensor]:
    """Scores in the hundred thousands, of which the largest two of a row are some apart."""
    generator = torch.Generator().manual_seed(seed)
    return [-(256 * torch.randn(2, 4, 160, 48, generator=generator)).abs() - 100 for _ in range(3)]


def refused(reference: Reference, change: object = None) -> tuple[Truth, torch.Tensor]:
    """A case on which fused attention, maybe of changed inputs, is further off than four times torch's own error."""
    for seed in range(200):
        inputs = far_below_zero(seed)
        truth = reference.truth(inputs)
        given = [change(each) for each in inputs] if callable(change) else inputs
        got = torch.nn.functional.scaled_dot_product_attention(*given)
        if isinstance(compare(truth, got, "strict", "case"), Mismatch):
            return truth, got
    pytest.fail("no such case")


def test_another_order_of_sums_is_excused_where_rounding_is_amplified(reference: Reference) -> None:
    truth, got = refused(reference)
    assert excused(reference, truth, got, "strict")


def test_fewer_bits_are_not(reference: Reference) -> None:
    def rounded(value: torch.Tensor) -> torch.Tensor:
        """As on a matrix unit that drops 13 bits."""
        return (value.view(torch.int32) & ~0x1FFF).view(torch.float32)

    truth, got = refused(reference, rounded)
    assert not excused(reference, truth, got, "strict")


def test_nobody_is_excused_where_rounding_does_nothing(reference: Reference) -> None:
    inputs = [torch.randn(2, 4, 160, 48) for _ in range(3)]
    truth = reference.truth(inputs)
    off = truth.own.clone()
    off[0, 0, 0, 0] += 3e-5 * truth.own.square().mean().sqrt()
    assert isinstance(compare(truth, off, "strict", "case"), Mismatch)
    assert not excused(reference, truth, off, "strict")


def test_what_is_not_finite_excuses_nobody(tmp_path: Path) -> None:
    """The inputs beside the edge of a domain have no result at all."""
    (tmp_path / "problem.py").write_text(
        "import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return torch.acos(x)\n\ndef get_inputs():\n    return [torch.rand(64)]\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    truth = reference.truth([torch.ones(64)])
    assert not excused(reference, truth, torch.full((64,), 1e-4), "strict")
