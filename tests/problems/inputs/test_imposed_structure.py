"""Inputs that lose the structure that they are given with."""

from __future__ import annotations

import pytest
import torch

from kforge.problems.inputs.imposed_structure import ASYMMETRIC, FILLED, names, structured, variation
from kforge.problems.inputs.structure import Structure
from kforge.problems.inputs.symmetry import Symmetry


def given(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    square = torch.randn(8, 8, generator=generator)
    return [square + square.mT, square.tril(), square, torch.zeros(8, 8)]


STRUCTURE = Structure.observed(given, (1, 2, 3))


def changed(name: str) -> list[torch.Tensor]:
    return variation(name)(given(4), torch.Generator().manual_seed(5), STRUCTURE)


def test_only_tensors_with_structure_lose_it() -> None:
    assert structured(ASYMMETRIC, STRUCTURE, given(1)) == [0]
    assert structured(FILLED, STRUCTURE, given(1)) == [1]
    assert names(STRUCTURE, given(1)) == ["asymmetric #0", "filled_zeros #1"]
    assert names(STRUCTURE, given(1)[:1]) == ["asymmetric #0"]
    many = Structure([STRUCTURE.leaves[0]] * 5)
    assert names(many, [given(1)[0]] * 5) == ["asymmetric #0", "asymmetric #1", "asymmetric #2,3,4"]
    fresh = variation("asymmetric #2,3,4")([given(1)[0] for _ in range(5)], torch.Generator().manual_seed(5), many)
    assert [torch.equal(each, each.mT) for each in fresh] == [True, True, False, False, False]


def test_the_symmetric_part_of_an_asymmetric_matrix_is_the_given_one() -> None:
    first, *others = changed("asymmetric #0")
    assert not torch.allclose(first, first.mT)
    assert torch.allclose((first + first.mT) / 2, given(4)[0])
    assert all(map(torch.equal, others, given(4)[1:]))


def test_zeros_are_filled_and_all_else_stays() -> None:
    values = changed("filled_zeros #1")
    assert bool((values[1] != 0).all())
    assert torch.equal(values[1].tril(), given(4)[1])
    assert torch.equal(values[0], given(4)[0])
    banded = torch.diag(torch.ones(8)) + torch.diag(torch.full((7,), 0.5), 1) + torch.diag(torch.full((7,), 0.5), -1)
    symmetric = Structure.observed(lambda seed: [seed * banded], (1, 2, 3))
    (filled,) = variation("filled_zeros #0")([banded], torch.Generator(), symmetric)
    assert bool((filled != 0).all())
    assert torch.equal(filled, filled.mT)


def test_an_expanded_matrix_stays_as_it_is() -> None:
    expanded = torch.eye(4).expand(3, 4, 4)
    structure = Structure.observed(lambda seed: [expanded * seed], (1, 2, 3))
    for name in ("asymmetric #0", "filled_zeros #0"):
        assert variation(name)([expanded], torch.Generator(), structure)[0] is expanded


@pytest.mark.parametrize(
    ("dtype", "symmetry"),
    [
        (torch.float32, Symmetry(-1)),
        (torch.complex64, Symmetry(1, conjugates=True)),
        (torch.complex64, Symmetry(-1, conjugates=True)),
        (torch.complex64, Symmetry(1)),
    ],
)
def test_matrices_of_any_symmetry_lose_it_and_keep_their_part_of_it(dtype: torch.dtype, symmetry: Symmetry) -> None:
    def inputs(seed: int) -> list[torch.Tensor]:
        square = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=dtype)
        return [square + symmetry.mirrored(square)]

    structure = Structure.observed(inputs, (1, 2, 3))
    assert "asymmetric #0" in names(structure, inputs(1))
    (values,) = variation("asymmetric #0")(inputs(4), torch.Generator().manual_seed(5), structure)
    assert not torch.allclose(values, symmetry.mirrored(values))
    assert torch.allclose((values + symmetry.mirrored(values)) / 2, inputs(4)[0])
