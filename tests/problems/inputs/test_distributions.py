"""Properties of every distribution: structure kept, domains kept, values really different."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge.problems.inputs.distributions import DISTRIBUTIONS
from kforge.problems.inputs.odd_rows import ODD
from kforge.problems.inputs.structure import Structure

DRAWN = [name for name in DISTRIBUTIONS if name != "as_given"]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def draw(name: str, inputs: list[Any], seed: int = 0) -> list[Any]:
    return DISTRIBUTIONS[name](inputs, torch.Generator().manual_seed(seed))


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Tensors of any small shape, dtype and layout: contiguous, permuted, sliced or expanded."""
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from(FLOATS))
    layout = draw(st.sampled_from(["contiguous", "permuted", "sliced", "expanded"]))
    if layout == "expanded" and shape:
        return torch.randn(*shape[:-1], 1, generator=generator).to(dtype).expand(shape)
    if layout == "sliced" and shape:
        return torch.randn(*shape[:-1], 2 * shape[-1] + 1, generator=generator).to(dtype)[..., 1::2]
    values = torch.randn(shape, generator=generator).to(dtype)
    return values.permute(draw(st.permutations(range(len(shape))))) if layout == "permuted" else values


@given(tensor=tensors(), name=st.sampled_from(DRAWN), seed=st.integers(0, 2**32))
def test_shape_dtype_and_strides_stay_and_the_given_tensor_too(tensor: torch.Tensor, name: str, seed: int) -> None:
    before = tensor.clone()
    (fresh,) = draw(name, [tensor], seed)
    assert fresh.shape == tensor.shape
    assert fresh.dtype == tensor.dtype
    assert fresh.stride() == tensor.stride()
    assert fresh.isfinite().all()
    assert torch.equal(tensor, before)
    assert torch.equal(fresh, draw(name, [tensor], seed)[0])


@given(
    name=st.sampled_from(DRAWN),
    seed=st.integers(0, 2**32),
    shape=st.lists(st.integers(1, 6), max_size=3),
    dtype=st.sampled_from(FLOATS),
    high=st.sampled_from([1.0, 50.0]),
)
def test_domains_stay(name: str, seed: int, shape: list[int], dtype: torch.dtype, high: float) -> None:
    given_values = (torch.rand(shape) * high).to(dtype)
    (fresh,) = draw(name, [given_values], seed)
    assert fresh.min() >= 0
    if given_values.max() <= 1:
        assert fresh.max() <= 1


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_what_is_no_floating_tensor_stays(name: str) -> None:
    inputs: list[Any] = [torch.arange(3), torch.tensor([True]), None, 2, 0.5, [torch.ones(2), {"k": torch.randn(3)}]]
    fresh = draw(name, inputs)
    assert fresh[0] is inputs[0]
    assert fresh[1] is inputs[1]
    assert fresh[2:5] == [None, 2, 0.5]
    assert isinstance(fresh[5], list)
    assert fresh[5][1]["k"].shape == (3,)


@pytest.mark.parametrize("name", DRAWN)
def test_structure_of_matrices_stays(name: str) -> None:
    lower = torch.randn(6, 6).tril()
    symmetric = torch.randn(2, 5, 5)
    symmetric = symmetric + symmetric.mT
    mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1) == 1, float("-inf"))
    fresh_lower, fresh_symmetric, fresh_mask, zero_state = draw(name, [lower, symmetric, mask, torch.zeros(3, 2)])
    assert torch.equal(fresh_lower, fresh_lower.tril())
    assert torch.equal(fresh_symmetric, fresh_symmetric.mT)
    assert torch.equal(fresh_mask, mask)
    assert torch.equal(zero_state, torch.zeros(3, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_symmetric_matrix_beside_mixed_rows_is_another_one_and_stays_positive_definite(dtype: torch.dtype) -> None:
    factor = torch.randn(3, 8, 8)
    given = (factor @ factor.mT + torch.eye(8)).to(dtype)
    given = (given + given.mT) / 2
    (fresh,) = draw("mixed_rows", [given])
    assert not torch.equal(fresh, given)
    assert torch.equal(fresh, fresh.mT)
    assert bool((torch.linalg.eigvalsh(fresh.float()) > 0).all())
    assert bool((fresh.abs() <= given.abs()).all())


@pytest.mark.parametrize("name", DRAWN)
def test_identity_gradients_and_overlaps_stay(name: str) -> None:
    tensor = torch.randn(4, requires_grad=True)
    one, two, three = draw(name, [tensor, tensor, torch.randn(4)])
    assert one is two
    assert one is not three
    assert one.requires_grad
    for signal in (torch.randn(10), torch.randn(10, dtype=torch.complex64)):
        windows = signal.unfold(0, 4, 1)
        before = signal.clone()
        (fresh,) = draw(name, [windows])
        assert (fresh.shape, fresh.stride(), fresh.dtype) == (windows.shape, windows.stride(), windows.dtype)
        assert torch.equal(fresh[:-1, 1:], fresh[1:, :-1])
        assert not torch.equal(fresh, windows)
        assert torch.equal(signal, before)


def test_as_given_is_as_given() -> None:
    inputs = [torch.randn(3), 4]
    assert draw("as_given", inputs) == inputs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_half_of_the_tiny_samples_of_unit_inputs_are_near_one(dtype: torch.dtype) -> None:
    (fresh,) = draw("tiny", [torch.rand(400, 32, dtype=torch.float64).to(dtype)])
    near_one = fresh.mean(1) > 0.5
    assert 120 < int(near_one.sum()) < 280
    assert float((1 - fresh[near_one]).max()) < 0.25
    assert float(fresh[~near_one].max()) < 0.05


def test_each_distribution_is_what_it_says() -> None:
    given_values = torch.randn(64, 128)
    fresh = {name: draw(name, [given_values])[0] for name in DRAWN}
    assert 2.9 < fresh["shifted"].mean() < 3.1
    assert fresh["uniform"].abs().max() <= 1
    assert fresh["uniform"].min() < -0.9
    assert 0 < fresh["tiny"].abs().max() < 1e-6
    assert fresh["large"].abs().max() > 500
    assert fresh["negative"].max() < -99
    assert fresh["positive"].min() > 99
    assert fresh["rising"].diff(dim=1).min() > 0
    edges = fresh["edges"].argmax(dim=1)
    assert set(edges.tolist()) == {0, 127}
    scales = fresh["mixed_scale"].abs().amax(dim=1)
    assert scales.max() / scales.min() > 1000
    assert not fresh["zeros"].any()
    assert fresh["ties"].unique().numel() < 30
    assert torch.equal(fresh["one_hot"].sum(dim=1), torch.ones(64))
    assert torch.equal(fresh["one_hot"], fresh["one_hot"].square())
    assert fresh["binary"].unique().tolist() == [0.0, 1.0]
    assert not torch.equal(fresh["shifted"], draw("shifted", [given_values], seed=1)[0])


@pytest.mark.parametrize("high", [None, 1.0, 8.0])
def test_long_rows_rise_without_equal_elements_and_columns_vary(high: float | None) -> None:
    given = torch.randn(16, 16384) if high is None else high * torch.rand(16, 16384)
    (fresh,) = draw("rising", [given])
    assert bool((fresh.diff(dim=1) > 0).all())
    assert bool((fresh.mean(1).abs() < 4 * fresh.std(1)).all())
    assert bool((fresh.mean(0).abs() < 8 * fresh.std(0)).all())
    assert high is None or (fresh.min() >= 0 and fresh.max() <= 1)


def test_both_parts_of_complex_inputs_are_drawn() -> None:
    given = torch.randn(8, 6).to(torch.complex64).mT
    structure = Structure.observed(lambda _: [given], (1, 2))
    fresh = DISTRIBUTIONS["large"]([given], torch.Generator().manual_seed(1), structure=structure)[0]
    assert fresh.dtype == given.dtype
    assert fresh.stride() == given.stride()
    assert float(fresh.imag.abs().max()) > 16


def test_rows_that_are_always_ascending_stay_so() -> None:
    def draw(seed: int) -> list[torch.Tensor]:
        return [torch.randn(16, generator=torch.Generator().manual_seed(seed)).sort().values]

    structure = Structure.observed(draw, (1, 2, 3))
    for name, distribution in (*DISTRIBUTIONS.items(), *ODD.items()):
        fresh = distribution(draw(4), torch.Generator().manual_seed(1), structure=structure)[0]
        assert torch.equal(fresh, fresh.sort().values), name
