"""Matrices that equal their own transpose, with a sign and a conjugation."""

from __future__ import annotations

import pytest
import torch

from kforge.problems.inputs.distributions import DISTRIBUTIONS
from kforge.problems.inputs.odd_rows import ODD
from kforge.problems.inputs.structure import Structure
from kforge.problems.inputs.symmetry import COMPLEX, REAL, Symmetry, symmetry_of

KINDS = [*((torch.float32, each) for each in REAL), *((torch.complex64, each) for each in COMPLEX)]


def matrices(dtype: torch.dtype, symmetry: Symmetry, seed: int = 0) -> torch.Tensor:
    square = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return square + symmetry.mirrored(square)


@pytest.mark.parametrize(("dtype", "symmetry"), KINDS)
def test_each_symmetry_is_found_and_can_be_imposed(dtype: torch.dtype, symmetry: Symmetry) -> None:
    given = matrices(dtype, symmetry)
    assert symmetry_of(given) == symmetry
    assert torch.equal(symmetry.imposed(given), given)
    assert symmetry_of(symmetry.imposed(torch.randn(2, 5, 5, dtype=dtype))) == symmetry


def test_other_tensors_have_none() -> None:
    skew = matrices(torch.float32, Symmetry(-1))
    one_off = skew.index_put((torch.tensor(1), torch.tensor(3), torch.tensor(4)), torch.tensor(9.0))
    for other in (one_off, skew[:, :4], skew[0, 0], torch.ones(3, 1, 1), torch.ones(4, 4, dtype=torch.long)):
        assert symmetry_of(other) is None
    assert symmetry_of(torch.empty(0, 3, 3)) is None


@pytest.mark.parametrize("name", [*DISTRIBUTIONS, *ODD])
@pytest.mark.parametrize(("dtype", "symmetry"), KINDS)
def test_inputs_of_every_distribution_keep_their_symmetry(name: str, dtype: torch.dtype, symmetry: Symmetry) -> None:
    structure = Structure.observed(lambda seed: [matrices(dtype, symmetry, seed)], (1, 2, 3))
    assert structure.leaves[0].symmetry == symmetry
    given = matrices(dtype, symmetry, 4)
    (fresh,) = {**DISTRIBUTIONS, **ODD}[name]([given], torch.Generator().manual_seed(0), structure)
    assert fresh.dtype == dtype
    assert torch.equal(fresh, symmetry.mirrored(fresh))


def test_an_expanded_hermitian_matrix_stays_expanded() -> None:
    symmetry = Symmetry(1, conjugates=True)
    given = matrices(torch.complex64, symmetry)[0].expand(3, 5, 5)
    (fresh,) = DISTRIBUTIONS["uniform"]([given], torch.Generator().manual_seed(0))
    assert fresh.stride() == given.stride()
    assert not torch.equal(fresh, given)
    assert symmetry_of(fresh) == symmetry
