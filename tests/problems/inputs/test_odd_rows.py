"""A few rows or elements at random places are unlike the others, and all else is as given."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kforge.problems.inputs.distributions import DISTRIBUTIONS, MILDER
from kforge.problems.inputs.odd_rows import MILDER_ODD, ODD, spoil_sets
from kforge.problems.inputs.structure import Structure

ALL = [*ODD.values(), *MILDER_ODD.values()]


def structure_of(draw: Any) -> Structure:
    def inputs(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return [draw()]

    return Structure.observed(inputs, (1, 2))


@pytest.mark.parametrize("number", range(len(ALL)))
@pytest.mark.parametrize("shape", [(300,), (64, 40), (16, 8, 40), (5, 4, 3, 10)])
def test_few_elements_differ_and_not_always_the_same(number: int, shape: tuple[int, ...]) -> None:
    given = torch.randn(shape)
    changed = torch.zeros(shape)
    for seed in range(12):
        (fresh,) = ALL[number]([given], torch.Generator().manual_seed(seed))
        differs = fresh != given
        assert 0 < int(differs.sum()) <= 0.5 * given.numel()
        changed += differs
    assert int((changed > 0).sum()) > int(differs.sum())
    assert float(changed.max()) < 12


@pytest.mark.parametrize("number", range(len(ALL)))
def test_domain_zero_pattern_strides_and_gradients_stay(number: int) -> None:
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        (fresh,) = ALL[number]([torch.rand(20, 30)], generator, structure_of(lambda: torch.rand(20, 30)))
        assert float(fresh.min()) >= 0
        assert float(fresh.max()) <= 1
        (fresh,) = ALL[number]([torch.randn(9, 9).tril()], generator, structure_of(lambda: torch.randn(9, 9).tril()))
        assert torch.equal(fresh, fresh.tril())
        given = torch.randn(12, 7).T.requires_grad_()
        (fresh,) = ALL[number]([given], generator)
        assert fresh.stride() == given.stride()
        assert fresh.requires_grad


def test_rows_are_mixed_at_random_places() -> None:
    given = torch.randn(64, 32)
    for distribution in (DISTRIBUTIONS["mixed_rows"], MILDER["mixed_rows"]):
        kept = [(distribution([given], torch.Generator().manual_seed(seed))[0] == given).all(1) for seed in range(20)]
        shares = torch.stack(kept).float().mean(1)
        assert float(shares.min()) > 0.05
        assert float(shares.max()) < 0.6
        corner = torch.stack(kept)[:, 0].float().mean()
        assert 0 < float(corner) < 1


def test_a_share_of_timed_inputs_gets_odd_rows_in_place() -> None:
    structure = structure_of(lambda: torch.randn(32, 16))
    sets = [[torch.randn(32, 16)] for _ in range(40)]
    before = [inputs[0].clone() for inputs in sets]
    spoil_sets(sets, structure, torch.Generator().manual_seed(0), mild=False, share=0.5)
    rows = [int((inputs[0] != given).any(1).sum()) for inputs, given in zip(sets, before, strict=True)]
    assert sum(1 for count in rows if count) == 4
    assert max(rows) <= 2
    few = [sum(1 for count in spoilt_rows(structure, seed) if count) for seed in range(40)]
    assert {0, 1, 2} == set(few)


def spoilt_rows(structure: Structure, seed: int) -> list[int]:
    sets = [[torch.randn(32, 16)] for _ in range(2)]
    before = [inputs[0].clone() for inputs in sets]
    spoil_sets(sets, structure, torch.Generator().manual_seed(seed), mild=True, share=0.5)
    return [int((inputs[0] != given).any(1).sum()) for inputs, given in zip(sets, before, strict=True)]


def test_what_the_problem_keeps_is_never_written_to() -> None:
    kept = torch.randn(8, 8)
    before = kept.clone()
    structure = Structure.observed(lambda _: [kept], (1, 2))
    sets = [[kept] for _ in range(9)]
    spoil_sets(sets, structure, torch.Generator().manual_seed(0), mild=True, share=1.0)
    assert torch.equal(kept, before)
    assert sum(1 for inputs in sets if not torch.equal(inputs[0], kept)) == 4  # copies of it have odd rows
