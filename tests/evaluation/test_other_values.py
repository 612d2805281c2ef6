"""Other values for weights: zeros move, single places change, signs turn, whatever the dtype."""

from __future__ import annotations

import random

import pytest
import torch

from kforge.evaluation.other_values import PLACES, change_a_place, flip, make_wild, move


def test_zeros_are_moved_as_well() -> None:
    value = torch.eye(16)
    move(value)
    assert bool((value != 0).all())
    assert bool((value.diagonal() >= 0.75).all())


def test_tables_keep_their_zeros_and_what_is_not_finite() -> None:
    value = torch.tensor([0.0, 1.0, float("-inf")])
    move(value, zeros=False)
    assert value[0] == 0
    assert value[1] != 1
    assert value[2] == float("-inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (8, 6), (2, 3, 4, 5)])
def test_every_kind_of_place_is_a_part_of_any_tensor(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for kind in PLACES:
        value = torch.ones(shape, dtype=dtype)
        change_a_place(value, kind, random.Random(1))
        changed = value != 1
        assert bool(changed.any())
        assert int(changed.sum()) == 1 or kind != "element"
        assert len(shape) < 2 or not bool(changed.all())
    move(value)
    make_wild(value)


def test_a_column_is_changed_and_the_others_are_not() -> None:
    value = torch.ones(8, 6)
    change_a_place(value, "column", random.Random(1))
    assert (value != 1).sum(0).tolist().count(8) == 1
    assert int((value != 1).sum()) == 8


def test_signs_turn_and_elements_are_zero_or_several_times_larger() -> None:
    torch.manual_seed(0)
    value = torch.ones(64)
    make_wild(value)
    assert {-1.0, 0.0, 8.0, 1.0} == set(value.tolist())


def test_some_of_a_mask_is_flipped() -> None:
    value = torch.ones(64, dtype=torch.bool)
    flip(value)
    assert 0 < int((~value).sum()) < 32
