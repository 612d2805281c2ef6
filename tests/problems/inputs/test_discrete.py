"""Integers, masks and zeros other than given keep what all draws of the inputs have in common."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kforge.problems.inputs.discrete import DISCRETE
from kforge.problems.inputs.structure import Structure
from kforge.problems.tensors import same

VARIATIONS = [(name, number) for name, several in DISCRETE.items() for number in range(len(several))]


def varied(draw: Any, name: str, number: int = 0, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A draw and what becomes of it."""

    def inputs(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return [draw()]

    structure, given = Structure.observed(inputs, (1, 2, 3)), inputs(seed + 10)
    before = given[0].clone()
    (fresh,) = DISCRETE[name][number](given, torch.Generator().manual_seed(seed), structure)
    assert same(given, [before])
    assert (fresh.shape, fresh.dtype, fresh.stride()) == (before.shape, before.dtype, given[0].stride())
    return before, fresh


@pytest.mark.parametrize(("name", "number"), VARIATIONS)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (50,), (6, 9), (2, 3, 4)])
def test_integers_stay_within_the_range_that_was_seen(name: str, number: int, shape: tuple[int, ...]) -> None:
    for seed in range(5):
        _, fresh = varied(lambda: torch.randint(3, 20, shape), name, number, seed)
        assert int(fresh.min()) >= 3
        assert int(fresh.max()) <= 19


@pytest.mark.parametrize("name", ["other_integers", "skewed_integers"])
def test_integers_and_masks_that_are_data_change(name: str) -> None:
    for draw in (
        lambda: torch.randint(0, 9, (8, 16)),
        lambda: torch.randint(0, 9, (64,), dtype=torch.int32),
        lambda: torch.rand(8, 16) < 0.5,
        lambda: torch.ones(8, 16, dtype=torch.bool),
        lambda: torch.randperm(40),
    ):
        given, fresh = varied(draw, name)
        assert not torch.equal(given, fresh)


def test_all_are_alike() -> None:
    _, ids = varied(lambda: torch.randint(0, 9, (8, 16)), "all_alike")
    assert ids.unique().numel() == 1
    given, mask = varied(lambda: torch.rand(8, 16) < 0.9, "all_alike")
    assert given.any()
    assert not mask.any()
    assert bool(varied(lambda: torch.rand(8, 16) < 0.9, "all_alike", 1)[1].all())
    for ordered in (lambda: torch.randperm(40), lambda: torch.arange(8)):
        given, fresh = varied(ordered, "all_alike")
        assert torch.equal(given, fresh)


def test_masks_are_throughout_what_they_mostly_are() -> None:
    given, mask = varied(lambda: torch.rand(8, 16) < 0.1, "uniform_masks")
    assert given.any()
    assert not mask.any(), "no object at all"
    given, ids = varied(lambda: torch.randint(0, 9, (8, 16)), "uniform_masks")
    assert torch.equal(given, ids)


def test_two_samples_are_filled_as_a_whole() -> None:
    """Cause: rows of an image were filled one by one, and no image was empty beside others that are not."""
    for seed in range(5):
        _, mask = varied(lambda: torch.rand(8, 16, 16) < 0.5, "skewed_integers", seed=seed)
        counts = mask.flatten(1).sum(1)
        assert 0 in counts
        assert 256 in counts
        assert ((counts > 0) & (counts < 256)).any()


def test_masks_get_other_densities() -> None:
    _, fresh = varied(lambda: torch.ones(64, 64, dtype=torch.bool), "other_integers")
    densities = fresh.float().mean(1)
    assert densities.min() < 0.3
    assert densities.max() > 0.7
    _, fresh = varied(lambda: torch.ones(64, 64, dtype=torch.bool), "skewed_integers")
    assert bool(fresh.all(1).any())
    assert bool((~fresh).all(1).any())
    _, fresh = varied(lambda: torch.ones(64, 64, dtype=torch.bool), "other_integers", 1)
    assert bool(fresh.any(1).all())
    assert not bool(fresh.all())


@pytest.mark.parametrize(("name", "number"), VARIATIONS)
def test_order_uniqueness_and_totals_stay(name: str, number: int) -> None:
    for seed in range(5):
        _, fresh = varied(lambda: torch.randperm(12), name, number, seed)
        assert fresh.sort().values.tolist() == list(range(12))
        given, fresh = varied(lambda: torch.randint(1, 60, (3, 20)).sort(1).values, name, number, seed)
        assert torch.equal(fresh, fresh.sort(1).values)

        def offsets() -> torch.Tensor:
            inner = torch.randperm(98)[:6].sort().values + 1
            return torch.cat([torch.tensor([0]), inner, torch.tensor([100])])

        given, fresh = varied(offsets, name, number, seed)
        assert (int(fresh[0]), int(fresh[-1])) == (0, 100)
        assert bool((fresh[1:] > fresh[:-1]).all())
        given, fresh = varied(lambda: torch.randperm(5) + 4, name, number, seed)
        assert int(fresh.sum()) == int(given.sum())
        _, fresh = varied(lambda: torch.nn.functional.one_hot(torch.randint(0, 4, (6,)), 4).bool(), name, number, seed)
        assert fresh.sum(1).tolist() == [1] * 6


@pytest.mark.parametrize("ordered", [False, True])
def test_different_integers_of_a_long_range_reach_its_end(ordered: bool) -> None:
    def ids() -> torch.Tensor:
        drawn = torch.stack([torch.randperm(1 << 16)[:8] for _ in range(300)])
        return drawn.sort(1).values if ordered else drawn

    given, fresh = varied(ids, "other_integers")
    assert int(fresh.max()) >= int(given.max())
    assert all(len(row.unique()) == 8 for row in fresh)
    assert (given == fresh).float().mean() < 0.1
    assert torch.equal(fresh.sort(1).values, fresh) is ordered


@pytest.mark.parametrize(("name", "number"), VARIATIONS)
def test_structure_stays(name: str, number: int) -> None:
    for draw in (
        lambda: torch.arange(9),
        lambda: torch.ones(5, 5).tril().bool(),
        lambda: torch.randn(5, 5).tril(),
        lambda: torch.tensor(-4),
    ):
        given, fresh = varied(draw, name)
        assert torch.equal(given, fresh)


def test_zeros_that_move_with_the_seed_are_put_elsewhere() -> None:
    given, fresh = varied(lambda: torch.randn(32, 64) * (torch.rand(32, 64) < 0.5), "moved_zeros")
    assert not torch.equal(given == 0, fresh == 0)
    assert (fresh == 0).float().mean(1).max() > 0.9
    assert (fresh == 0).float().mean(1).min() < 0.1


def _masked(shape: tuple[int, int], value: float) -> torch.Tensor:
    """Of this value but for minus infinity at all places of a row but two."""
    mask = torch.full(shape, float("-inf"))
    return mask.scatter_(1, torch.rand(shape).topk(2, -1).indices, value)


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_infinities_that_move_with_the_seed_are_put_elsewhere_in_other_numbers(value: float) -> None:
    given, fresh = varied(lambda: _masked((64, 64), value), "moved_zeros", 1)
    assert set(fresh.unique().tolist()) == {float("-inf"), value}
    assert not torch.equal(fresh.isinf(), given.isinf())
    assert fresh.isinf().float().mean(1).min() < 0.3
    assert fresh.isinf().float().mean(1).max() > 0.9
    for seed in range(5):  # milder: a softmax has a result
        _, fresh = varied(lambda: _masked((64, 3), value), "moved_zeros", 2, seed)
        assert bool(fresh.isfinite().any(1).all())
        assert bool(fresh.isinf().any())
    given, fresh = varied(lambda: _masked((64, 64), value), "moved_zeros", 3)
    assert torch.equal(fresh.isinf().sum(1), given.isinf().sum(1))
    assert not torch.equal(fresh.isinf(), given.isinf())


def test_some_rows_of_a_mask_of_infinities_have_no_finite_element() -> None:
    _, fresh = varied(lambda: _masked((64, 512), 0.0), "moved_zeros")
    whole = fresh.isinf().all(1)
    assert 0 < int(whole.sum()) < 32
    assert set(fresh.unique().tolist()) == {float("-inf"), 0.0}


def test_infinities_at_fixed_places_stay() -> None:
    for number in range(4):
        given, fresh = varied(lambda: torch.full((8, 8), float("-inf")).triu(1), "moved_zeros", number)
        assert torch.equal(given, fresh)


def test_integers_of_one_number_go_down_and_zeros_up() -> None:
    for draw, most in ((lambda: torch.full((64,), 9), 9), (lambda: torch.zeros(64, dtype=torch.long), 1)):
        for name in ("other_integers", "skewed_integers"):
            given, fresh = varied(draw, name)
            assert not torch.equal(given, fresh)
            assert 0 <= int(fresh.min()) <= int(fresh.max()) <= most


def test_milder_lengths_are_never_zero() -> None:
    _, fresh = varied(lambda: torch.full((64,), 9), "other_integers", 1)
    assert 1 <= int(fresh.min()) < 9


def test_names_that_differ_by_chance_may_be_equal() -> None:
    _, fresh = varied(lambda: torch.randint(0, 1 << 62, (64,)), "skewed_integers")
    assert fresh.unique().numel() < 64


def test_a_draw_may_be_longer_than_all_that_were_seen() -> None:
    lengths = iter((3, 5, 4, 9))
    given, fresh = varied(lambda: torch.arange(next(lengths)), "other_integers")
    assert len(given) == len(fresh) == 9
    assert len(set(fresh.tolist())) == 9


def test_expanded_masks_and_windows_of_integers_vary_and_keep_their_strides() -> None:
    for name in ("other_integers", "skewed_integers"):
        given, fresh = varied(lambda: (torch.rand(4, 1, 16) < 0.5).expand(4, 8, 16), name)
        assert not torch.equal(given, fresh)
        given, fresh = varied(lambda: torch.randint(0, 9, (40,), dtype=torch.int32).unfold(0, 8, 1), name)
        assert not torch.equal(given, fresh)
        assert torch.equal(fresh[:-1, 1:], fresh[1:, :-1])


def test_first_column_of_a_mask_is_flipped_unless_the_reference_needs_it() -> None:
    """Cause: it was never flipped, so a program could ignore the first element of each row of a mask."""
    for name, milder in (("flipped_masks", 1), ("other_integers", 2)):
        first = [varied(lambda: torch.rand(16, 4) < 0.5, name, 0, seed) for seed in range(5)]
        assert any(not torch.equal(given[:, 0], fresh[:, 0]) for given, fresh in first)
        for seed in range(5):
            given, fresh = varied(lambda: torch.rand(16, 4) < 0.5, name, milder, seed)
            assert torch.equal(given[:, 0], fresh[:, 0])


def test_no_row_of_a_mask_loses_its_last_true_element_when_few_are_flipped() -> None:
    for number in range(2):
        for seed in range(20):
            given, fresh = varied(lambda: torch.rand(200, 2) < 0.5, "flipped_masks", number, seed)
            assert not torch.equal(given, fresh)
            assert bool((~given.any(1) | fresh.any(1)).all())


def test_flipped_masks_are_as_given_at_most_places() -> None:
    for draw in (lambda: torch.ones(64, 64, dtype=torch.bool), lambda: torch.ones(64, 64, dtype=torch.int64)):
        given, fresh = varied(draw, "flipped_masks")
        assert not torch.equal(given[:, 0], fresh[:, 0])
        assert 0 < int((given != fresh).sum()) < 64 * 64 // 8
        given, fresh = varied(draw, "flipped_masks", 1)
        assert torch.equal(given[:, 0], fresh[:, 0])
        assert 0 < int((given != fresh).sum()) < 64 * 64 // 8
    given, fresh = varied(lambda: torch.randint(0, 9, (64,)), "flipped_masks")
    assert torch.equal(given, fresh)
