"""Parts of an output are judged on their own scale: what is small must be right as well, and rounding is no fault."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge.evaluation.comparison.comparison import Agreement, Truth, compare, surely_alike


def accepts(exact: torch.Tensor, got: torch.Tensor, own: torch.Tensor | None = None, precision: str = "strict") -> bool:
    own = exact.float() if own is None else own
    return isinstance(compare(Truth(exact, own), got, precision, "case", local=True), Agreement)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fading(steps: int, factor: float, dimension: int, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    sizes = [steps if at == dimension else 1 for at in range(len(shape))]
    return normal(*shape, seed=seed) * factor ** torch.arange(steps).double().view(sizes)


@pytest.mark.parametrize(("shape", "dimension"), [((200, 40), 0), ((4, 200, 40), 1), ((40, 200), 1), ((30, 200, 3), 1)])
@pytest.mark.parametrize("precision", ["strict", "tf32", "half"])
def test_zeros_in_what_decays_are_wrong(shape: tuple[int, ...], dimension: int, precision: str) -> None:
    exact = fading(200, 0.9, dimension, shape)
    got = exact.float()
    assert accepts(exact, got, precision=precision)
    got.narrow(dimension, 150, 50).zero_()
    assert not accepts(exact, got, precision=precision)
    assert isinstance(compare(Truth(exact, exact.float()), got, precision, "case"), Agreement), "on the whole's scale"


def test_small_channels_between_large_ones_are_judged() -> None:
    """Each decays by its own factor, so neither rows nor columns are small as a whole."""
    factors = torch.tensor([1.0, 0.8]).double().repeat(32)
    exact = normal(256, 64) * factors ** torch.arange(256).double()[:, None]
    got = exact.float()
    assert accepts(exact, got)
    got[128:, 1::2] = 0.0
    assert not accepts(exact, got)


@given(st.integers(0, 255), st.floats(1e-20, 1.0), st.integers(0, 1000))
@settings(max_examples=40)
def test_any_row_that_is_zeros_instead_is_wrong(row: int, scale: float, seed: int) -> None:
    exact = normal(256, 64, seed=seed)
    exact[row] *= scale
    got = exact.float()
    assert accepts(exact, got)
    got[row] = 0.0
    assert not accepts(exact, got)


@given(
    st.integers(0, 1000), st.floats(0.0, 30.0), st.sampled_from([(4096,), (64, 64), (16, 8, 32), (5, 3), (7,), (1,)])
)
@settings(max_examples=60)
def test_rounding_passes_at_any_scales(seed: int, spread: float, shape: tuple[int, ...]) -> None:
    rows = (*shape[:-1], 1) if len(shape) > 1 else shape
    exact = normal(*shape, seed=seed) * torch.exp2(spread * normal(*rows, seed=seed + 1).clamp(-2, 2))
    noise = 1 + 4 * torch.finfo(torch.float32).eps * normal(*shape, seed=seed + 2)
    assert accepts(exact, (exact * noise).float())


@given(st.integers(0, 1000))
@settings(max_examples=30)
def test_errors_on_the_scale_of_the_whole_pass_where_nothing_is_small(seed: int) -> None:
    """As a convolution by Fourier transform has."""
    exact = normal(32, 40, 40, seed=seed)
    assert accepts(exact, (exact + 1.5e-6 * normal(32, 40, 40, seed=seed + 1)).float())


def test_scattered_small_elements_need_only_be_right_on_the_scale_of_their_neighbours() -> None:
    """A softplus by log(1 + exp(x)) is zero for much of what is far below zero."""
    x = 10 * normal(256, 256)
    exact = torch.nn.functional.softplus(x)
    got = torch.log(1 + torch.exp(x.float().clamp(max=80)))
    assert (got == 0).double().mean() > 0.03
    assert accepts(exact, got)


def test_torchs_worst_error_excuses_only_where_it_is_made() -> None:
    """The first row cancels; a constant, or fewer bits, in all the others would be within four times its error."""
    exact = normal(256, 64)
    own = exact.float()
    own[0] += 0.5 * normal(64, seed=1).float()
    honest = exact.float()
    honest[0] += 0.5 * normal(64, seed=2).float()
    assert accepts(exact, honest, own)
    for got in (torch.zeros(256, 64), torch.full((256, 64), float(exact.mean())), exact.bfloat16().float()):
        assert isinstance(compare(Truth(exact, own), got, "strict", "case"), Agreement), "on the whole's scale"
        assert not accepts(exact, got, own)


def test_cancelling_rows_may_be_as_far_off_as_torchs() -> None:
    exact = normal(256, 64)
    exact[::2] *= 1e-8
    noise = torch.zeros(256, 64)
    noise[::2] = 1e-7
    own, got = ((exact + noise * normal(256, 64, seed=seed)).float() for seed in (1, 2))
    assert accepts(exact, got, own)
    assert not accepts(exact, got, exact.float())


def test_what_is_zero_in_truth_has_no_scale() -> None:
    exact = normal(64, 64)
    exact[10:20] = 0.0
    assert accepts(exact, (exact + 1e-7 * normal(64, 64, seed=1)).float())


def test_below_the_smallest_normal_number_nothing_is_judged() -> None:
    exact = normal(64, 64)
    exact[10:20] *= 1e-36
    got = exact.float()
    got[10:20] = 0.0
    assert accepts(exact, got)


def test_every_element_of_a_short_output_counts() -> None:
    exact = torch.tensor([1.0, 1e-3, 1e-6, 1e-9], dtype=torch.float64)
    assert accepts(exact, exact.float())
    assert not accepts(exact, torch.tensor([1.0, 1e-3, 1e-6, 0.0]))


def test_complex_outputs_have_parts_too() -> None:
    exact = torch.complex(fading(200, 0.9, 0, (200, 40)), fading(200, 0.9, 0, (200, 40), seed=1))
    got = exact.to(torch.complex64)
    assert accepts(exact, got, got.clone())
    got[150:] = 0
    assert not accepts(exact, got, exact.to(torch.complex64))


def test_timed_outputs_with_zeros_in_what_decays_are_not_surely_alike() -> None:
    one = fading(200, 0.9, 0, (200, 40)).float()
    got = one.clone()
    assert surely_alike(one, got, "strict")
    got[150:] = 0.0
    assert not surely_alike(one, got, "strict")


def test_a_mismatch_names_the_part_and_counts_in_units_of_the_floor() -> None:
    exact = fading(200, 0.9, 0, (200, 40))
    got = exact.float()
    got[199] = 0.0
    found = compare(Truth(exact, exact.float()), got, "strict", "case", local=True)
    assert "slice 199 of dimension 0" in found.reason  # type: ignore[union-attr]
    assert found.tolerance == pytest.approx(1e-5)
    # nothing of the slice is right: its error is nearly one, and the limit is 1.6e-4
    assert 1e-5 * 0.5 / 1.6e-4 < found.max_error <= 1e-5 / 1.6e-4  # type: ignore[union-attr,operator]


@pytest.mark.parametrize("value", [-1e9, -1e5, float(torch.finfo(torch.float32).min)])
@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_what_a_mask_leaves_is_judged_on_its_own_scale(value: float, share: float) -> None:
    masked = torch.rand(128, 512, generator=torch.Generator().manual_seed(1)) < share
    exact = normal(128, 512).masked_fill(masked, value)
    assert accepts(exact, exact.float())
    near = normal(128, 512) * (1 + 1e-6 * normal(128, 512, seed=2))
    assert accepts(exact, near.masked_fill(masked, value).float())
    for wrong in (torch.zeros(128, 512), normal(128, 512).bfloat16().float()):
        got = wrong.masked_fill(masked, value)
        assert not accepts(exact, got)
        assert not surely_alike(exact.float(), got, "strict")


def test_small_elements_without_a_gap_above_are_not_judged_apart() -> None:
    """As exact as its neighbours is exact enough."""
    exact = normal(128, 512) ** 5
    noise = 3e-6 * float(exact.square().mean().sqrt()) * (2 * torch.rand(128, 512) - 1)
    assert accepts(exact, (exact + noise).float())
