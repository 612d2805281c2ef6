"""What of a problem's inputs is structure, and what is data, by comparing draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kforge.problems.inputs.structure import Leaf, Structure, kept_symmetry

KEPT = torch.randn(4)


def observed(draw: Any) -> Leaf:
    def inputs(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return [draw()]

    (leaf,) = Structure.observed(inputs, (1, 2, 3)).leaves
    return leaf


def test_zeros_at_the_same_places_for_every_seed_are_structure() -> None:
    triangular = observed(lambda: torch.randn(6, 6).tril())
    assert triangular.keeps_places
    assert not triangular.fixed
    sparse = observed(lambda: torch.randn(6, 6) * (torch.rand(6, 6) < 0.5))
    assert not sparse.keeps_places
    assert observed(lambda: torch.randn(4, 4).masked_fill(torch.ones(4, 4).triu(1) == 1, float("-inf"))).keeps_places


def test_a_mask_of_zeros_and_infinities_that_moves_with_the_seed_is_data() -> None:
    def mask() -> torch.Tensor:
        return torch.zeros(6, 6).masked_fill(torch.rand(6, 6) < 0.5, float("-inf"))

    assert not observed(mask).keeps_places
    assert observed(lambda: torch.full((6, 6), float("-inf")).triu(1)).keeps_places


def test_a_tensor_of_one_value_has_no_structure() -> None:
    assert not observed(lambda: torch.zeros(3, 4)).keeps_places
    assert observed(lambda: torch.ones(3, 4, dtype=torch.bool)).varies
    infinite = observed(lambda: torch.full((4, 4), float("inf")))
    assert infinite.uniform
    assert not infinite.keeps_places
    assert kept_symmetry(torch.full((4, 4), float("inf")), infinite) is None


@pytest.mark.parametrize(
    ("draw", "varies"),
    [
        (lambda: torch.randint(0, 9, (5, 6)), True),
        (lambda: torch.tensor([3, 1, 1, 2]), True),
        (lambda: torch.arange(8), False),
        (lambda: torch.tensor([2, 0, 1]), False),
        (lambda: torch.full((4,), 7), True),
        (lambda: torch.full((4,), -7), False),
        (lambda: torch.randperm(8), True),
        (lambda: torch.rand(4, 4) < 0.5, True),
        (lambda: torch.ones(4, 4).tril().bool(), False),
    ],
)
def test_integers_vary_where_they_are_data(draw: Any, varies: bool) -> None:
    assert observed(draw).varies is varies


def test_what_all_draws_have_in_common_is_seen() -> None:
    assert observed(lambda: torch.randint(0, 100, (3, 20)).sort(1).values).ascending
    assert observed(lambda: torch.randperm(9)).distinct
    assert not observed(lambda: torch.randint(0, 3, (9,))).distinct
    assert not observed(lambda: torch.randint(0, 1 << 36, (9,))).distinct  # names, which differ by chance
    lengths = observed(lambda: torch.multinomial(torch.ones(4), 40, replacement=True).bincount(minlength=4))
    assert lengths.total == 40
    assert observed(lambda: torch.nn.functional.one_hot(torch.randint(0, 4, (6,)), 4).bool()).one_true
    leaf = observed(lambda: torch.randint(2, 50, (100,)))
    assert (leaf.low, leaf.high) == (2, 49)


def test_a_tensor_that_the_problem_keeps_is_told_from_one_that_is_drawn() -> None:
    assert observed(lambda: KEPT).kept
    drawn = [torch.randn(4) for _ in range(3)]
    assert not observed(drawn.pop).kept


def test_inputs_whose_sizes_are_data_are_no_error() -> None:
    assert observed(lambda: torch.randn(int(torch.randint(1, 9, ())), 2)).kind == "floating"


def test_every_draw_counts_and_not_only_the_last_one() -> None:
    drawn = [torch.zeros(4).long(), torch.tensor([0, 9, 0, 0]), torch.zeros(4).long()]
    leaf = observed(lambda: drawn.pop())
    assert (leaf.high, leaf.fixed) == (9, False)


def test_how_many_tensors_there_are_may_be_data() -> None:
    drawn = [[torch.arange(3), torch.randn(2)], [torch.arange(5)], [torch.arange(3), torch.randn(2), torch.ones(2)]]
    structure = Structure.observed(lambda seed: drawn[seed], (0, 1, 2))
    assert [leaf.kind for leaf in structure.leaves] == ["integer", "floating"]
    assert (structure.leaves[0].high, structure.leaves[0].fixed) == (4, False)
    other = Structure.observed(lambda seed: [torch.arange(3)] if seed else [torch.randn(3)], (0, 1))
    assert other.leaves[0].kind == "other"


def test_a_tensor_given_twice_and_an_expanded_one_are_shared() -> None:
    def shared(draw: Any) -> bool:
        return Structure.observed(lambda _: draw(), (1, 2)).shared

    one = torch.randn(4, 4)
    assert shared(lambda: [one, {"again": one}])
    assert shared(lambda: [torch.randn(1, 4).expand(3, 4)])
    assert not shared(lambda: [torch.randn(1, 4).expand(1, 4), torch.randn(4).unfold(0, 2, 1), one.T, one + 1])
