"""Indices that point at equal values are as good as torch's; any others are not."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge.evaluation.indices import points_alike
from kforge.evaluation.verify import Agreement, Truth, compare


def last_largest(values: torch.Tensor, dimension: int) -> torch.Tensor:
    """An argmax that takes the last of equal values, where torch takes the first."""
    return values.shape[dimension] - 1 - values.flip(dimension).argmax(dimension)


@given(st.integers(0, 2), st.integers(0, 10_000))
def test_another_of_equal_values_is_right(dimension: int, seed: int) -> None:
    values = torch.randint(0, 3, (4, 5, 6), generator=torch.Generator().manual_seed(seed)).float()
    own, got = values.argmax(dimension), last_largest(values, dimension)
    assert points_alike(values, own, got)
    assert points_alike(values, own.unsqueeze(dimension), got.unsqueeze(dimension))


@given(st.integers(0, 10_000))
def test_another_value_is_wrong(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(6, 7, generator=generator)
    own = values.argmax(1)
    got = own.clone()
    got[int(torch.randint(6, (1,), generator=generator))] += 1
    assert not points_alike(values, own, got % 7)


def test_an_index_of_the_flattened_tensor() -> None:
    values = torch.tensor([[1.0, 3.0], [3.0, 2.0]])
    assert points_alike(values, torch.tensor(1), torch.tensor(2))
    assert not points_alike(values, torch.tensor(1), torch.tensor(3))


def test_a_top_k_names_each_place_once() -> None:
    values = torch.tensor([[5.0, 5.0, 5.0, 1.0]])
    assert points_alike(values, torch.tensor([[0, 1]]), torch.tensor([[2, 0]]))
    assert not points_alike(values, torch.tensor([[0, 1]]), torch.tensor([[2, 2]]))


@pytest.mark.parametrize("got", [[-1], [4], [2**62]])
def test_a_place_outside_is_wrong(got: list[int]) -> None:
    assert not points_alike(torch.zeros(1, 4), torch.tensor([0]), torch.tensor(got))


def test_integers_that_are_no_indices_stay_exact() -> None:
    counts = torch.tensor([3, 4])
    assert not points_alike(torch.randn(2, 2), counts, counts + 1)
    assert not points_alike(torch.zeros(2, 9), counts.int(), counts.int() + 1)


def test_the_comparison_knows_the_inputs() -> None:
    values = torch.tensor([[2.0, 7.0, 7.0]])
    own = values.argmax(1)
    assert isinstance(compare(Truth(own, own, [values]), torch.tensor([2]), "strict", "ties"), Agreement)
    assert not isinstance(compare(Truth(own, own, [values]), torch.tensor([0]), "strict", "ties"), Agreement)
