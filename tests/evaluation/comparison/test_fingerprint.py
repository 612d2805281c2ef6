"""Fingerprints: every bit and its place count, and nobody can tell them without the keys."""

from __future__ import annotations

import pytest
import torch

from kforge.evaluation.comparison.fingerprint import Fingerprints

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bool, torch.int64, torch.complex64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 7, 4096])
def test_one_bit_is_seen(dtype: torch.dtype, count: int) -> None:
    prints, tensor = Fingerprints(), torch.zeros(count, dtype=dtype)
    before = prints.of([tensor])
    assert prints.of([tensor.clone()]) == before
    tensor[secret := count // 2] = 1
    assert prints.of([tensor]) != before
    tensor[secret] = 0
    assert prints.of([tensor]) == before


def test_places_count() -> None:
    prints, tensor = Fingerprints(), torch.randn(1000, 3)
    assert prints.of(tensor) != prints.of(tensor.flip(0))
    assert prints.of(tensor) != prints.of(tensor.view(3, 1000))


def test_layouts_do_not_count() -> None:
    prints, tensor = Fingerprints(), torch.randn(700, 900)
    turned = tensor.T.contiguous().T
    assert not turned.is_contiguous()
    assert prints.of(turned) == prints.of(tensor)


def test_not_a_number_is_what_its_bits_are() -> None:
    prints, tensor = Fingerprints(), torch.full((5,), float("nan"))
    assert prints.of(tensor) == prints.of(tensor.clone())


def test_empty_and_scalar_tensors_have_one() -> None:
    prints = Fingerprints()
    assert len(prints.of({"none": torch.empty(0, 3), "scalar": torch.tensor(2.0), "text": "x"})) == 2


def test_keys_are_secret() -> None:
    tensor = torch.randn(10)
    assert Fingerprints().of(tensor) != Fingerprints().of(tensor)
