"""Slices of an output are judged on their own scale: a small head or channel must have as many bits as the others."""

from __future__ import annotations

import pytest
import torch

from kforge.evaluation.comparison.comparison import Agreement, Truth, compare, surely_alike
from kforge.evaluation.comparison.slices import small_slices


def accepts(exact: torch.Tensor, got: torch.Tensor) -> bool:
    return isinstance(compare(Truth(exact, exact.float()), got, "strict", "case", local=True), Agreement)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("shape", "small"),
    [
        ((2, 8, 128, 64), (slice(None), 5)),
        ((4, 32, 32, 32), (slice(None), 3)),
        ((64, 512), (slice(None), slice(7, 8))),
        ((1, 512), (0, slice(64, 128))),
        ((2, 8, 128, 64), (slice(None), 5, slice(None), 9)),
    ],
    ids=["head", "channel", "column", "block", "channel_of_a_head"],
)
@pytest.mark.parametrize("scale", [1e-2, 1e-4])
def test_few_bits_in_a_small_slice_are_wrong_and_rounding_is_not(
    shape: tuple[int, ...], small: tuple[int | slice, ...], scale: float
) -> None:
    exact = normal(*shape)
    exact[small] *= scale
    honest = (exact * (1 + 4 * torch.finfo(torch.float32).eps * normal(*shape, seed=1))).float()
    assert accepts(exact, honest)
    rough = exact.float()
    rough[small] = rough[small].bfloat16().float()
    assert not accepts(exact, rough)
    assert not surely_alike(exact.float(), rough, "strict")


def test_a_slice_that_one_element_makes_up_is_not_judged() -> None:
    """After a rectifier a channel may hold one number next to zero: its error is that of a sum that cancels."""
    exact = normal(64, 64)
    exact[:, 3] = 0.0
    exact[7, 3] = 1e-4
    got = exact.float()
    got[7, 3] += 1e-6
    assert accepts(exact, got)


def test_large_slices_are_not_looked_at() -> None:
    exact = normal(64, 64)
    assert small_slices(exact.flatten(), (64, 64), 0.1, 0) == []
    exact[:, 3] *= 0.01
    (found,) = small_slices(exact.flatten(), (64, 64), 0.1, 0)
    assert found.name(0) == "slice 3 of dimension 1"


def test_a_few_elements_that_torch_loses_do_not_decide_about_a_slice() -> None:
    exact = normal(256, 64)
    own, got = exact.float(), exact.float()
    own[::8] += 0.5 * normal(32, 64, seed=1).float()
    got[::8] += 0.5 * normal(32, 64, seed=2).float()
    for _ in range(16):  # of random samples
        assert isinstance(compare(Truth(exact, own), got, "strict", "case", local=True), Agreement)
