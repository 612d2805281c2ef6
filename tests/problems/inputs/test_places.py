"""Which tensors of different draws belong together."""

from __future__ import annotations

from typing import Any

import torch

from kforge.problems.inputs.discrete import DISCRETE
from kforge.problems.inputs.distributions import DISTRIBUTIONS
from kforge.problems.inputs.odd_rows import ODD, spoil_sets
from kforge.problems.inputs.places import Places, paths_of
from kforge.problems.inputs.structure import Structure, first_of_places, tensors_of

KEPT = [torch.randn(5, 6) for _ in range(9)]


def ragged(seed: int) -> list[Any]:
    """Sequences and their masks, as many as the seed says, and a matrix."""
    torch.manual_seed(seed)
    parts = [torch.randn(5, 6) for _ in range(seed)]
    return [parts, [torch.ones(5, dtype=torch.bool) for _ in parts], torch.randn(4, 4).tril()]


def test_the_tensors_of_a_list_whose_length_changes_share_a_place() -> None:
    structure = Structure.observed(ragged, (2, 3, 4))
    assert [leaf.kind for leaf in structure.leaves] == ["floating", "boolean", "floating"]
    assert structure.places_of(ragged(7)) == [0] * 7 + [1] * 7 + [2]
    assert structure.leaves[1].varies
    assert structure.leaves[2].keeps_places
    assert first_of_places(structure, ragged(3)) == {0: 0, 1: 3, 2: 6}


def test_tensors_of_several_kinds_in_one_changing_list_are_kept_apart() -> None:
    def draw(seed: int) -> list[Any]:
        return [[each for _ in range(seed) for each in (torch.randn(3), torch.randint(0, 5, (3,)))]]

    structure = Structure.observed(draw, (2, 3))
    assert sorted(leaf.kind for leaf in structure.leaves) == ["floating", "integer"]
    assert structure.places_of(draw(4)) == [0, 1] * 4


def test_positions_stay_if_no_list_changes() -> None:
    places = Places([paths_of(ragged(2)), paths_of(ragged(2))])
    assert not places.change
    assert places.of(ragged(2)) == [0, 1, 2, 3, 4]


def test_a_list_that_changes_only_later_is_known_by_its_first_tensor() -> None:
    structure = Structure.observed(lambda _: ragged(2), (1, 2, 3))
    assert len(structure.leaves) == 5
    assert structure.places_of(ragged(3)) == [0, 1, 0, 2, 3, 2, 4]


def test_lists_in_changing_lists_are_found() -> None:
    def draw(seed: int) -> list[Any]:
        return [[{"ids": [torch.zeros(3)] * (1 + row % 2)} for row in range(seed)], torch.zeros(2)]

    structure = Structure.observed(draw, (2, 4))
    assert len(structure.leaves) == 2
    assert structure.places_of(draw(3)) == [0, 0, 0, 0, 1]


def test_every_tensor_of_a_changing_list_is_varied() -> None:
    structure, given = Structure.observed(ragged, (2, 3, 4)), ragged(6)
    masks = DISCRETE["other_integers"][0](given, torch.Generator().manual_seed(1), structure)[1]
    assert not any(bool(mask.all()) for mask in masks)
    changed = [ODD["odd_rows"], DISTRIBUTIONS["large"]]
    for change in changed:
        parts = change(given, torch.Generator().manual_seed(1), structure)[0]
        assert all(not torch.equal(one, other) for one, other in zip(parts, given[0], strict=True))


def test_odd_rows_do_not_reach_tensors_that_the_problem_keeps() -> None:
    before = [tensor.clone() for tensor in KEPT]
    structure = Structure.observed(lambda seed: [KEPT[:seed]], (2, 3, 4))
    sets = [[KEPT[: 2 + number % 3]] for number in range(32)]
    spoil_sets(sets, structure, torch.Generator().manual_seed(1), mild=False, share=1.0)
    assert all(map(torch.equal, before, KEPT))
    assert any(one is not other for drawn in sets for one, other in zip(tensors_of(drawn), KEPT, strict=False))
