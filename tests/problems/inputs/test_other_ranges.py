"""Inputs beyond the given values: below zero, over one, and of other magnitudes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kforge.problems.inputs import other_ranges
from kforge.problems.inputs.structure import Structure


def structure_of(draw: Any) -> Structure:
    def inputs(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return list(draw())

    return Structure.observed(inputs, (1, 2))


def varied(draw: Any, name: str, number: int = 0, seed: int = 3) -> list[Any]:
    structure = structure_of(draw)
    variation = other_ranges.variations(name, structure)[number]
    return variation(list(draw()), torch.Generator().manual_seed(seed), structure)


def test_each_tensor_without_negative_values_has_a_case_of_its_own() -> None:
    structure = structure_of(lambda: [torch.rand(8, 8), torch.randn(8, 8), torch.rand(8) * 5])
    assert [name for name in other_ranges.names(structure) if name.startswith("outside")] == [
        "outside #0",
        "outside #1",
    ]
    assert other_ranges.names(structure_of(lambda: [torch.randn(8)])) == ["enormous", "minute"]
    assert other_ranges.names(structure_of(lambda: [torch.randint(0, 9, (8,))])) == []
    many = structure_of(lambda: [torch.rand(4) for _ in range(9)])
    assert len(other_ranges.names(many)) == other_ranges.MOST_OUTSIDE + 2 + 2 * other_ranges.MOST_SCALED


def test_outside_changes_one_tensor_below_zero_and_over_one_and_no_other() -> None:
    one, kept, other = torch.rand(64, 8), torch.randn(64, 8), torch.rand(64, 8)
    fresh = varied(lambda: [one, kept, other], "outside #1")
    assert fresh[0] is one
    assert fresh[1] is kept
    assert float(fresh[2].min()) < -1
    assert float(fresh[2].max()) > 1


def test_where_negative_values_give_no_result_those_over_one_are_tried() -> None:
    numbers = range(len(other_ranges.variations("outside #0", structure_of(lambda: [torch.rand(64, 8)]))))
    draws = [varied(lambda: [torch.rand(64, 8)], "outside #0", number)[0] for number in numbers]
    assert [bool((values < 0).any()) for values in draws] == [True, True, False, False]
    assert all(float(values.max()) > 1 for values in draws)


@pytest.mark.parametrize(("name", "low", "high"), [("enormous", 1e6, 1e8), ("minute", 1e-17, 1e-13)])
def test_all_tensors_get_another_magnitude(name: str, low: float, high: float) -> None:
    for values in varied(lambda: [torch.rand(64, 8), torch.randn(64, 8)], name):
        assert low < float(values.abs().median()) < high
        assert bool((values < 0).any())


def test_half_precision_has_no_such_numbers() -> None:
    given = torch.randn(8, 8, dtype=torch.float16)
    assert torch.equal(varied(lambda: [given], "enormous")[0], given)


def test_zeros_that_are_structure_stay() -> None:
    for name in ("outside #0", "enormous"):
        (fresh,) = varied(lambda: [torch.rand(16, 16).tril()], name)
        assert not bool(fresh.triu(1).any())


def test_the_names_of_cases_tell_them_apart() -> None:
    assert all(map(other_ranges.is_beyond, ("outside #2", "enormous", "minute")))
    assert not any(map(other_ranges.is_beyond, ("as_given #1", "huge", "a timed call", "outsider")))


def test_a_product_of_two_sums_of_squares_is_a_number_still() -> None:
    one, other = varied(lambda: [torch.randn(64, 4096), torch.randn(64, 4096)], "enormous")
    assert bool(torch.isfinite(one.square().sum(-1) * other.square().sum(-1)).all())


@pytest.mark.parametrize(("kind", "low", "high"), [("enormous", 1e6, 1e8), ("minute", 1e-17, 1e-13)])
def test_each_tensor_gets_another_magnitude_beside_others_as_given(kind: str, low: float, high: float) -> None:
    def draw() -> list[torch.Tensor]:
        return [torch.randn(64, 8), torch.randint(0, 9, (8,)), torch.rand(64, 8)]

    structure = structure_of(draw)
    assert [name for name in other_ranges.names(structure) if name.startswith(f"{kind} #")] == [
        f"{kind} #0",
        f"{kind} #1",
    ]
    given = draw()
    for number, (changed, kept) in enumerate([(0, 2), (2, 0)]):
        variation = other_ranges.variations(f"{kind} #{number}", structure)[0]
        fresh = variation(given, torch.Generator().manual_seed(1), structure)
        assert low < float(fresh[changed].abs().median()) < high
        assert fresh[kept] is given[kept]
        assert other_ranges.singly(f"{kind} #{number}", structure) == {}


def test_of_many_tensors_several_change_together_or_singly_where_the_reference_refuses() -> None:
    structure = structure_of(lambda: [torch.randn(4) for _ in range(5)])
    assert set(other_ranges.singly("enormous #1", structure)) == {1, 4}
    assert other_ranges.singly("enormous", structure) == {}


def test_expanded_rows_and_windows_lose_their_signs_too() -> None:
    for draw in (lambda: [torch.rand(1, 8).expand(16, 8)], lambda: [torch.rand(40).unfold(0, 8, 1)]):
        for number in (2, 3):
            (fresh,) = varied(draw, "outside #0", number)
            assert bool((fresh >= 0).all())
            assert fresh.stride() == draw()[0].stride()


def test_a_single_number_goes_over_one_and_elsewhere() -> None:
    def draw() -> list[torch.Tensor]:
        return [torch.randn(8, 8), torch.rand(())]

    assert other_ranges.OVER_ONE in other_ranges.names(structure_of(draw))
    over = [varied(draw, other_ranges.OVER_ONE, seed=seed)[1] for seed in range(8)]
    assert sum(float(each) > 1 for each in over) >= 6
    outside = [varied(draw, "outside #0", seed=seed)[1] for seed in range(8)]
    assert any(float(each) < 0 for each in outside)
