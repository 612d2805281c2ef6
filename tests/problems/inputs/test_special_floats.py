"""Floating-point numbers that a module treats unlike all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from kforge import problems
from kforge.problems.inputs.special_floats import named_numbers, numbers_of_module, variations
from kforge.problems.inputs.structure import Structure
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

NAMED = """
import torch
from torch import nn

GONE = 9999

class Model(nn.Module):
    lost = 7777

    def forward(self, x):
        x = x * 0.25 + x.mean(dim=-3)
        return torch.where((x == GONE) | (x != self.lost) | x.eq(8888), x, x - -5)

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.where((x != -999.0) & (x != -7) & (x < 1e20) & (x != 9999), x, 0.0) * 3

def get_inputs():
    return [torch.randn(64, 32)]

def get_init_inputs():
    return []
"""


def fresh(numbers: list[float], inputs: list[Any], number: int = 0, seed: int = 1) -> list[Any]:
    structure = Structure.observed(lambda seed: inputs, (1, 2))
    chosen = variations(numbers, structure, inputs)[number]
    return chosen(inputs, torch.Generator().manual_seed(seed), structure)


def test_numbers_of_the_source_and_the_module_are_found(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(SOURCE)
    assert {-999.0, 999.0, -7.0, 1e20, 9999.0, 0.0} == set(named_numbers(instantiate(problems.load(path))))
    path.write_text(NAMED)
    named = named_numbers(instantiate(problems.load(path)))
    assert (set(named[:3]), set(named[3:])) == ({9999.0, 7777.0, 8888.0}, {-5.0, 0.25}), "those it compares come first"
    module = nn.Module()
    module.code, module.codes, module.size, module.low = 0.3, (-4, 7.5), 12, -3  # type: ignore[assignment]
    module.register_buffer("missing", torch.tensor(-9.0))
    module.register_buffer("table", torch.randn(4))
    assert {0.3, -4.0, 7.5, -3.0, -9.0} == set(numbers_of_module(module))

    class Own(nn.Module):
        missing = 1

        def __init__(self) -> None:
            super().__init__()
            self.code, self.power = 9999, 2

    assert set(numbers_of_module(nn.Sequential(Own(), nn.Linear(7, 11)))) == {9999.0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_replace_a_part_and_those_half_as_large_again(dtype: torch.dtype) -> None:
    given = torch.randn(256, 256).to(dtype)
    (values,) = fresh([-999.0, 1e20], [given], 1)
    off = values != given
    assert 0.1 < float(off.double().mean()) < 0.18
    wanted = torch.tensor([-999.0, -1498.5, 1e20, 1.5e20]).to(dtype)
    assert set(values[off].tolist()) == set(wanted.tolist())
    assert 0.005 < float((values > 1e19).double().mean()) < 0.025


def test_numbers_that_the_dtype_does_not_have_are_left_out() -> None:
    (values,) = fresh([1e20, -999.0], [torch.randn(256, 256).half()])
    assert bool(values.isfinite().all())
    assert bool((values == -999.0).any())


def test_milder_numbers_are_within_the_interval_and_then_not_very_large() -> None:
    given = torch.rand(256, 256) * 5
    assert float(fresh([-999.0, 1e20, 7.0], [given], 1)[0].min()) < -1000
    assert float(fresh([-999.0, 1e20, 7.0], [given], 2)[0].min()) >= 0
    assert float(fresh([-999.0, 1e20, 7.0], [given], 2)[0].max()) > 1e19
    assert float(fresh([-999.0, 1e20, 7.0], [given], 3)[0].max()) == 10.5


def test_some_rows_have_one_number_throughout() -> None:
    (values,) = fresh([-999.0], [torch.randn(256, 64)])
    assert 1 <= int(((values == -999.0) | (values == -1498.5)).all(-1).sum()) < 60
    (values,) = fresh([-999.0], [torch.randn(8, 32, 64)])
    whole = (values == -999.0).all(-1) | (values == -1498.5).all(-1)
    assert int(whole.all(-1).sum()) == 2, "samples"
    assert 64 <= int(whole.sum()) < 120
    assert not bool(fresh([-999.0], [torch.randn(8, 32, 64)], 1)[0].std(-1).eq(0).any())


@pytest.mark.parametrize(("number", "given", "expected"), [
    (-1.0, torch.rand(64, 64), True),
    (2.0, torch.rand(64, 64), True),
    (2.0, 9 * torch.rand(64, 64), False),
    (-1.0, torch.randn(64, 64), False),
])  # fmt: skip
def test_ordinary_numbers_are_used_outside_the_interval_of_the_given_values(
    number: float, given: torch.Tensor, expected: bool
) -> None:
    structure = Structure.observed(lambda seed: [given], (1, 2))
    assert bool(variations([number], structure, [given])) is expected
    if expected:
        (values,) = fresh([number], [given])
        assert bool((values == number).any())


def test_some_single_numbers_become_special() -> None:
    assert {fresh([-5.0], [torch.randn(8, 8), 3.5], 0, seed)[1] for seed in range(20)} >= {3.5, -5.0}
    seen = {float(fresh([-5.0], [torch.randn(8, 8), torch.tensor(0.25)], 0, seed)[1]) for seed in range(20)}
    assert seen >= {0.25, -5.0}


def test_single_numbers_stay_within_their_dtype_and_keep_their_gradients() -> None:
    given = torch.tensor(0.25, dtype=torch.float16, requires_grad=True)
    seen = [fresh([-1e9, -5.0], [torch.randn(8, 8), given], 0, seed)[1] for seed in range(20)]
    assert {each.item() for each in seen} == {0.25, -5.0}
    assert all(each.requires_grad for each in seen)


def test_ordinary_numbers_take_no_place_from_others() -> None:
    numbers = [-1.0, 0.0, 0.5, 1.0, 2.0, *(float(-each) for each in range(1000, 1032)), 9e9]
    always = [
        {float(value) for value in fresh(numbers, [torch.randn(64, 64)], 1, seed)[0].reshape(-1)} for seed in (1, 2)
    ]
    assert all(set(numbers[5:13]) <= found for found in always)


def test_limits_do_not_cross() -> None:
    seen = {tuple(fresh([-5.0, 7.0], [torch.randn(8, 8), -0.5, 0.5], 0, seed)[1:]) for seed in range(60)}
    assert {(-5.0, 7.0), (-5.0, 0.5), (-0.5, 7.0), (-0.5, 0.5)} <= seen
    assert all(low < high for low, high in seen)


def test_arguments_and_inputs_of_one_element_are_used_and_stay() -> None:
    values, missing, code = fresh([], [torch.randn(64, 64), -9.0, torch.tensor(77.0)], 1)
    assert bool((values == -9.0).any())
    assert bool((values == 77.0).any())
    assert missing == -9.0
    assert float(code) == 77.0


def test_structure_stays_and_no_number_means_no_case() -> None:
    triangle = torch.randn(64, 64).tril()
    (values,) = fresh([-9.0], [triangle])
    assert not bool(values.triu(1).any())
    assert bool((values == -9.0).any())
    assert not variations([], Structure.observed(lambda seed: [triangle], (1, 2)), [triangle])
