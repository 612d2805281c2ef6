"""Whether the reference is sure of its result for inputs beyond the given values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from kforge import problems
from kforge.evaluation.comparison.comparison import Truth, compare
from kforge.evaluation.correctness.beyond_given_values import (
    GROSS,
    is_in_proportion,
    is_sound,
    limits_cross,
    looks_up,
    spared_where_unreliable,
    unreliable,
)
from kforge.evaluation.reference.reference import Reference
from kforge.problems.instance import instantiate
from kforge.records import Mismatch

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y=1.0):
        return {body}

def get_inputs():
    return [torch.randn(64, 32)]

def get_init_inputs():
    return []
"""


def reference_of(folder: Path, body: str) -> Reference:
    path = folder / "problem.py"
    path.write_text(SOURCE.format(body=body))
    return Reference(instantiate(problems.load(path)), 1)


@pytest.mark.parametrize(
    ("body", "scale", "sure"),
    [
        ("x.cumsum(-1)", 2.0**50, True),
        ("torch.softmax(x, -1)", 2.0**-50, True),
        ("nn.functional.layer_norm(x, (32,))", 2.0**50, True),
        ("torch.sin(x)", 2.0**50, False),
        ("torch.sin(x)", 1.0, True),
        ("x / (x.sum(-1, keepdim=True) - x.sum(-1, keepdim=True).round())", 2.0**14, False),
    ],
)
def test_a_result_that_rounding_decides_is_not_sure(tmp_path: Path, body: str, scale: float, sure: bool) -> None:
    reference = reference_of(tmp_path, body)
    inputs = [torch.randn(64, 32, generator=torch.Generator().manual_seed(5)) * scale]
    assert is_sound(reference, reference.truth(inputs), "strict") is sure


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_few_steps_in_few_bits_are_sure(tmp_path: Path, dtype: torch.dtype) -> None:
    """Torch itself is off by more than the floor there."""
    inputs = [torch.randn(512, 256, generator=torch.Generator().manual_seed(5)).to(dtype)]
    chain = reference_of(tmp_path, "(((torch.relu(x) * 1.3 + 0.7) ** 2 - 0.4) * 0.6 + 0.3) ** 2")
    truth = chain.truth(inputs)
    assert isinstance(compare(Truth(truth.exact, truth.exact.to(dtype)), truth.own, "strict", ""), Mismatch)
    assert is_sound(chain, truth, "strict")
    waves = reference_of(tmp_path, "torch.sin(x * 1000)")
    assert not is_sound(waves, waves.truth(inputs), "strict")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x.flatten()[(x * 9).long()]", True),
        ("torch.ops.aten.index.Tensor(x, [(x[:, 0] * 9).long()])", True),
        ("nn.functional.binary_cross_entropy(x, x)", True),
        ("nn.functional.cross_entropy(x, (x[:, 0] * 9).long())", True),
        ("nn.functional.embedding((x * 9).long(), x)", True),
        ("torch.take_along_dim(x, (x * 9).long(), 1)", True),
        ("x.scatter(1, (x * 9).long(), 0.0)", True),
        ("torch.relu(x @ x.T)", False),
        ("x[:, 1:] - x[..., :-1]", False),
    ],
)
def test_operators_that_look_up_are_seen(tmp_path: Path, body: str, expected: bool) -> None:
    assert looks_up(reference_of(tmp_path, body), [torch.rand(64, 32)]) is expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x.cumsum(-1)", True),
        ("torch.tanh(x @ x.T)", True),
        ("torch.softmax(x, -1)", True),
        ("(x + 1) - 1", False),
        ("(x * 1e-3 + 1e4) - 1e4", False),
    ],
)
def test_digits_that_double_precision_loses_beside_one_are_seen(tmp_path: Path, body: str, expected: bool) -> None:
    reference = reference_of(tmp_path, body)
    inputs = [torch.randn(64, 32, generator=torch.Generator().manual_seed(5)) * 2.0**-50]
    assert is_in_proportion(reference, reference.truth(inputs)) is expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x * torch.tanh(y)", True),
        ("torch.exp(y) + x", True),
        ("((x + 1) - 1) * y", False),
    ],
)
def test_minute_inputs_are_compared_beside_others_as_given(tmp_path: Path, body: str, expected: bool) -> None:
    reference = reference_of(tmp_path, body)
    generator = torch.Generator().manual_seed(5)
    minute, given = (torch.randn(64, 32, generator=generator) * scale for scale in (2.0**-50, 1.0))
    assert is_in_proportion(reference, reference.truth([minute, given])) is expected


@pytest.mark.parametrize(
    ("body", "cross"),
    [
        ("x.clamp(-1.0, 1.0)", False),
        ("torch.clamp(x, min=1.0, max=-1.0)", True),
        ("x.clip(2, max=1)", True),
        ("x.clamp(min=3.0)", False),
        ("x.clamp(min=1.0).clamp(max=-1.0)", False),  # in an order that the reference itself says
    ],
)
def test_a_lower_limit_above_the_upper_one_is_seen(tmp_path: Path, body: str, cross: bool) -> None:
    reference = reference_of(tmp_path, body)
    assert limits_cross(reference, reference.instance.inputs(1)) is cross


HASHED = "(x * 1.0 + torch.nn.functional.elu(x), torch.frac(torch.sin(x * 12.9898) * 43758.5453))"
QUANTISED = "torch.round(torch.nn.functional.elu(x) * (127 / x.abs().max())).to(torch.int8)"


@pytest.mark.parametrize(("body", "scale"), [(HASHED, 2.0**10), (QUANTISED, 2.0**3)])
def test_one_unreliable_part_excuses_no_other_part(tmp_path: Path, body: str, scale: float) -> None:
    reference = reference_of(tmp_path, body)
    inputs = [torch.randn(512, 256, generator=torch.Generator().manual_seed(5)) * scale]
    inputs[0][0, :4] = (torch.arange(4) + 0.5) * inputs[0].abs().max() / 127  # these are between two integers
    truth = reference.truth(inputs)
    counts = unreliable(reference, truth, "strict")
    assert any(counts)

    def is_right(output: object) -> bool:
        spared = spared_where_unreliable(reference, truth, output, counts)
        return not isinstance(compare(truth, spared, GROSS, ""), Mismatch)

    moved = reference.own_result([inputs[0] * (1 + 1e-7)])
    assert is_right(moved)
    wrong = reference_of(tmp_path, body.replace("torch.nn.functional.elu(x)", "x")).own_result(inputs)
    assert not is_right(wrong)
