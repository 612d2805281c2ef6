"""Integers that a module treats unlike all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kforge import problems
from kforge.problems.instance import Instance, instantiate
from kforge.problems.special import larger_integers, special_integers, with_larger, with_special

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags = nn.EmbeddingBag(500, 4, mode="sum", padding_idx=77)

    def forward(self, x, which):
        return {body}

def get_inputs():
    return [torch.randn(64, 32), {integers}]

def get_init_inputs():
    return []
"""
LABELS = "torch.randint(0, 32, (64,))"


def instance_of(folder: Path, body: str, integers: str = LABELS) -> Instance:
    path = folder / "problem.py"
    path.write_text(SOURCE.format(body=body, integers=integers))
    return instantiate(problems.load(path))


def found(instance: Instance) -> list[int]:
    return special_integers(instance, instance.inputs(1), instance.structure).get(1, [])


def test_targets_that_do_not_count_are_found(tmp_path: Path) -> None:
    assert -100 in found(instance_of(tmp_path, "nn.functional.cross_entropy(x, which)"))
    assert 255 in found(instance_of(tmp_path, "nn.functional.cross_entropy(x, which, ignore_index=255)"))
    assert -7 in found(instance_of(tmp_path, "nn.functional.cross_entropy(x, which, ignore_index=-7)"))


def test_places_counted_from_the_end_are_not_special(tmp_path: Path) -> None:
    assert not [number for number in found(instance_of(tmp_path, "x.repeat(4, 4)[which]")) if number < 0]


def test_padding_within_the_range_is_found_by_the_attribute(tmp_path: Path) -> None:
    assert 77 in found(instance_of(tmp_path, "self.bags(which)", "torch.randint(0, 500, (64, 4))"))


def test_offsets_stay_as_they_are(tmp_path: Path) -> None:
    assert not found(instance_of(tmp_path, "x[which]", "torch.arange(64)"))


def test_a_quarter_of_the_elements_is_special_and_distinct_rows_stay_distinct(tmp_path: Path) -> None:
    many = instance_of(tmp_path, "x", "torch.randint(0, 32, (64, 40))")
    inputs = many.inputs(1)
    _, fresh = with_special(inputs, torch.Generator().manual_seed(1), many.structure, {1: [-100]})
    assert 0.15 < float((fresh == -100).float().mean()) < 0.35
    apart = instance_of(tmp_path, "x", "torch.stack([torch.randperm(100)[:8] for _ in range(64)])")
    inputs = apart.inputs(1)
    _, fresh = with_special(inputs, torch.Generator().manual_seed(1), apart.structure, {1: [3]})
    assert all(len(row.unique()) == 8 for row in fresh)
    assert bool((fresh == 3).any(1).all())


def test_integers_may_be_as_large_as_the_module_takes(tmp_path: Path) -> None:
    def limits(body: str, integers: str = LABELS) -> dict[int, int | None]:
        instance = instance_of(tmp_path, body, integers)
        return larger_integers(instance, instance.inputs(1), instance.structure)

    few = limits("self.bags(which)", "torch.randint(0, 50, (64, 4))")
    assert few[1] is not None
    assert 250 <= few[1] < 500
    assert limits("self.bags(which)", "torch.randint(0, 500, (64, 400))") == {}  # all that it takes are given
    assert limits("x * which[:, None]") == {1: None}
    assert limits("torch.bincount(which)") == {1: None}
    assert limits("x[which]", "torch.arange(64)") == {}


def test_larger_integers_are_drawn_from_the_whole_range(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "x", "torch.randint(3, 9, (64, 40))")
    inputs = instance.inputs(1)
    same, fresh = with_larger(inputs, torch.Generator().manual_seed(1), instance.structure, {1: 1000})
    assert same is inputs[0]
    assert int(fresh.min()) >= 3
    assert 900 < int(fresh.max()) <= 1000
