"""Which inputs make a reference search among unsorted numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kforge.evaluation.comparison.comparison import Truth
from kforge.evaluation.correctness.ordered_lookups import OrderedLookups

EDGES, SHUFFLED = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 1.0, 3.0])


class Searches(nn.Module):
    def forward(self, edges: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(edges, torch.ones(2))


class SearchesDescending(nn.Module):
    def forward(self, edges: torch.Tensor) -> torch.Tensor:
        return torch.bucketize(torch.ones(2), boundaries=edges.flip(-1))


class SearchesWithSorter(nn.Module):
    def forward(self, edges: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(edges, torch.ones(2), sorter=edges.argsort())


class Sums(nn.Module):
    def forward(self, edges: torch.Tensor) -> torch.Tensor:
        return edges.sum()


def lookups(model: nn.Module, given: torch.Tensor) -> OrderedLookups:
    def own_result(inputs: list[Any], copied: nn.Module) -> Any:
        return copied(*inputs)

    reference: Any = SimpleNamespace(model=model, own_result=own_result)
    return OrderedLookups(lambda: reference, lambda: [given])


@pytest.mark.parametrize(("model", "given"), [(Searches(), EDGES), (SearchesDescending(), EDGES.flip(0))])
def test_the_order_of_what_is_searched_counts(model: nn.Module, given: torch.Tensor) -> None:
    found = lookups(model, given)
    assert found.are_undefined([SHUFFLED])
    assert not found.are_undefined([given])
    assert not found.are_undefined([torch.zeros(3)]), "equal numbers are in order"


@pytest.mark.parametrize("model", [Sums(), SearchesWithSorter()])
def test_other_modules_are_defined_for_any_order(model: nn.Module) -> None:
    assert not lookups(model, EDGES).are_undefined([SHUFFLED])


def test_a_module_that_searches_unsorted_numbers_as_given_excuses_nothing() -> None:
    assert not lookups(Searches(), SHUFFLED).are_undefined([SHUFFLED])


class SearchesAndSums(nn.Module):
    def forward(self, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.searchsorted(edges, torch.tensor([0.5, 2.5])), edges.sin()


def test_what_depends_on_no_lookup_is_judged() -> None:
    model = SearchesAndSums()
    truth = Truth(model(SHUFFLED), model(SHUFFLED), [SHUFFLED])
    found = lookups(model, EDGES)
    output = found.spared(truth, (torch.tensor([7, 7]), SHUFFLED.cos()))
    assert output is not None
    assert torch.equal(output[0], truth.own[0])
    assert torch.equal(output[1], SHUFFLED.cos())
    assert found.spared(Truth(model(EDGES), model(EDGES), [EDGES]), output) is None
