"""What constructions of a module have alike."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from kforge.problems.likeness import Likeness


class Twins(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = copy.deepcopy(self.first)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.first.weight
        self.mix = nn.Parameter(torch.eye(4))
        self.register_buffer("mean", torch.zeros(4))


def test_what_no_draw_decides_and_what_is_a_copy() -> None:
    likeness = Likeness.observed(Twins)
    assert likeness.fixed == {"mix", "mean"}
    assert likeness.uniform == {"mean"}
    assert likeness.copies == {"second.weight", "second.bias"}


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.block_diag(torch.randn(2, 2), torch.randn(2, 2)))
        self.sparse = nn.Parameter(torch.randn(64) * (torch.arange(64) == torch.randint(64, ())))
        self.dense = nn.Parameter(torch.randn(4, 4))
        self.bias = nn.Parameter(torch.zeros(4))


def test_zeros_at_the_same_places_of_a_drawn_entry_are_seen() -> None:
    likeness = Likeness.observed(Blocks)
    assert likeness.zeros == {"weight", "sparse"}
    assert likeness.fixed == {"bias"}


class Features(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("table", torch.arange(4), persistent=False)
        self.known = self.linear.weight
        if kind == "buffer":
            self.register_buffer("directions", torch.randn(4), persistent=False)
        elif kind == "attribute":
            self.kept = {"directions": [torch.randn(4)]}
        elif kind == "number":
            self.offset = random.random()
        elif kind == "array":
            self.array = np.random.rand(4)


@pytest.mark.parametrize("kind", ["buffer", "attribute", "number", "array", "none"])
def test_what_draws_decide_outside_of_the_state_is_seen(kind: str) -> None:
    assert Likeness.observed(lambda: Features(kind)).draws_outside is (kind != "none")


def test_random_states_of_the_caller_stay() -> None:
    before = torch.get_rng_state()
    Likeness.observed(Twins)
    assert torch.equal(before, torch.get_rng_state())
