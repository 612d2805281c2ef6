"""Other values for weights: zeros move, single places change, signs turn, whatever the dtype."""

from __future__ import annotations

import math
import random

import pytest
import torch

from kforge.evaluation.reference.other_values import (
    PLACES,
    change_a_place,
    enlarge_a_row,
    flip,
    has_finite_marks,
    is_ascending,
    is_no_limit,
    is_tiny,
    is_vast,
    make_ordinary,
    make_wild,
    move,
    shuffle,
    some_rows,
)


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


@pytest.mark.parametrize(("part", "rows"), [(8, 125), (64, 15), (512, 1), (None, 1)])
def test_of_a_long_table_a_share_of_the_rows_changes(part: int | None, rows: int) -> None:
    for kind in ("row", "element"):
        table = torch.ones(1000, 4)
        change_a_place(table, kind, random.Random(1), some_rows(table, part, random.Random(2)))
        assert int((table != 1).any(1).sum()) == rows
    table = torch.ones(1000, 4)
    enlarge_a_row(table, random.Random(1), part)
    assert int((table == 256).all(1).sum()) == rows
    column = torch.ones(1000, 4)
    change_a_place(column, "column", random.Random(1), some_rows(column, part, random.Random(2)))
    assert int((column != 1).sum()) == 1000


def test_of_a_short_table_one_row_changes() -> None:
    table = torch.ones(500, 4)
    enlarge_a_row(table, random.Random(1), 8)
    assert int((table != 1).any(1).sum()) == 1


@pytest.mark.parametrize("shape", [(), (64,), (64, 1, 1), (1, 64), (32, 64), (16, 8, 3, 3)])
def test_tiny_parameters_become_ordinary_and_keep_signs_and_zeros(shape: tuple[int, ...]) -> None:
    value = torch.full(shape, -1e-5)
    value.view(-1)[value.numel() // 2 :] *= -1
    if value.numel() > 1:
        value.view(-1)[0] = 0
    before = value.clone()
    assert is_tiny(value)
    make_ordinary(value)
    assert torch.equal(value.sign(), before.sign())
    assert not is_tiny(value)
    assert float(value.abs().max()) <= 1


@pytest.mark.parametrize(
    "value", [torch.zeros(8), torch.ones(8), torch.randn(32, 4096) / 4096**0.5, torch.arange(8), torch.empty(0)]
)
def test_ordinary_parameters_are_not_tiny(value: torch.Tensor) -> None:
    assert not is_tiny(value)


@pytest.mark.parametrize("number", [math.inf, torch.finfo(torch.float32).max / 4, 1e5])
@pytest.mark.parametrize("shape", [(), (64,), (32, 64)])
def test_limits_that_bound_nothing_become_ordinary(number: float, shape: tuple[int, ...]) -> None:
    value = torch.full(shape, number)
    assert is_no_limit(value)
    make_ordinary(value)
    assert not is_vast(value)
    assert 0 < float(value.min()) <= float(value.max()) <= 1


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(-1e9),  # what a mask fills in
        torch.full((4,), -math.inf),
        torch.tensor([1.0, math.inf]),
        torch.arange(20000.0, 20008.0),
        torch.tensor(10000.0),
        torch.tensor(math.nan),
        torch.tensor(2**30),
        torch.empty(0),
    ],
)
def test_other_large_numbers_stay(value: torch.Tensor) -> None:
    assert not is_no_limit(value)


@pytest.mark.parametrize("mark", [1.0, 2.5, -3.0])
def test_a_mask_of_numbers_is_flipped_to_its_own_number(mark: float) -> None:
    value = torch.zeros(64, 64)
    value[:, :4] = mark
    assert has_finite_marks(value)
    before = value.clone()
    flip(value)
    assert set(value.unique().tolist()) == {0.0, mark}
    counts = (value != 0).sum(1)
    assert int(counts.min()) != int(counts.max())
    assert 0 < int((value != before).sum()) < 1024


def test_only_masks_of_finite_numbers_have_marks_that_can_be_flipped() -> None:
    assert has_finite_marks(torch.tensor([True, False]))
    assert not has_finite_marks(torch.tensor([0.0, -math.inf]))
    assert not has_finite_marks(torch.tensor([0.0, 1.0, 2.0]))
    assert not has_finite_marks(torch.ones(4))


@pytest.mark.parametrize("length", [3, 4, 64])
def test_ascending_numbers_are_shuffled(length: int) -> None:
    value = torch.arange(float(length))
    shuffle(value)
    assert not is_ascending(value)
    assert torch.equal(value.sort().values, torch.arange(float(length)))


def test_ones_and_zeros_that_were_moved_are_switched_in_places() -> None:
    for value, other in ((torch.full((256,), 0.8), 0.0), (torch.full((256,), -0.2), 1.0)):
        before = value.clone()
        flip(value)
        changed = value != before
        assert 0 < int(changed.sum()) < 128
        assert bool((value[changed] == other).all())


@pytest.mark.parametrize("fewer", [False, True])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_flipped_mask_has_more_marks_or_fewer_as_asked(dtype: torch.dtype, *, fewer: bool) -> None:
    for _ in range(100):
        value = torch.zeros(32).index_fill(0, torch.randperm(32)[:8], 1.0).to(dtype)
        flip(value, fewer=fewer)
        marks = int((value != 0).sum())
        assert marks < 8 if fewer else marks > 8
