"""Infinities and NaN that a reference writes on purpose are told from an overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from kforge import problems
from kforge.evaluation.reference.reference import Reference
from kforge.evaluation.reference.written_constants import written_on_purpose
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        {body}
        return y

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ("y = x.masked_fill(x > 50, float('nan'))", True),
        ("y = torch.where(x > 50, float('inf'), x)", True),
        ("y = x.clone(); y[x > 50] = float('-inf')", True),
        ("y = torch.where(x > 50, torch.tensor(float('nan')), x)", True),
        ("y = x.exp()", False),
        ("y = x.clamp(max=float('inf')).exp()", False),
        ("y = x.masked_fill(x < -50, float('-inf')).exp()", False),
    ],
)
def test_a_constant_is_told_from_an_overflow(tmp_path: Path, body: str, written: bool) -> None:
    (tmp_path / "problem.py").write_text(SOURCE.format(body=body))
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 1)
    truth = reference.truth([torch.tensor([1.0, 100.0, -100.0, 1000.0])])
    assert not truth.own[3].isfinite()
    (places,) = written_on_purpose(reference, truth)
    assert (places is not None and bool(places[3])) is written
