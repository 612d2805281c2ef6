"""Masks whose rows have one mark in every draw have none or several where the module takes that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge import problems
from kforge.problems.inputs.mark_counts import NO_MARKS, SEVERAL_MARKS, counted, taken, with_counts
from kforge.problems.inputs.structure import Structure
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, marks):
        return {body}

def get_inputs():
    return [torch.randn(16, 8, 4), {marks}]

def get_init_inputs():
    return []
"""
BOOLEANS = "torch.eye(8)[torch.randint(8, (16,))].bool()"
INTEGERS = "torch.eye(8)[torch.randint(8, (16,))].long()"


def structure_of(draw: Any) -> Structure:
    def inputs(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return [draw()]

    return Structure.observed(inputs, (1, 2, 3))


@pytest.mark.parametrize(
    ("draw", "is_counted"),
    [
        (lambda: torch.eye(8)[torch.randint(8, (16,))].bool(), True),
        (lambda: torch.eye(8)[torch.randint(8, (16,))].long(), True),
        (lambda: torch.zeros(16, 8, dtype=torch.long).scatter_(1, torch.rand(16, 8).topk(3, 1).indices, 1), True),
        (lambda: torch.rand(16, 8) < 0.5, False),  # other cases have other numbers of marks
        (lambda: torch.randint(0, 2, (16, 8)), False),
        (lambda: torch.eye(8).bool(), False),  # fixed, and labelled as such
        (lambda: torch.ones(16, 8, dtype=torch.bool), False),
        (lambda: torch.randperm(2), False),  # a permutation
        (lambda: torch.randn(16, 8), False),
    ],
)
def test_masks_with_the_same_number_of_marks_in_every_draw_are_known(draw: Any, is_counted: bool) -> None:
    assert counted(structure_of(draw)) == ([0] if is_counted else [])


@pytest.mark.parametrize("dtype", [torch.bool, torch.long])
@pytest.mark.parametrize("rows", [1, 16])
def test_rows_have_no_marks_or_several(dtype: torch.dtype, rows: int) -> None:
    def draw() -> torch.Tensor:
        return torch.eye(8)[torch.randint(8, (rows,))].to(dtype)

    structure, given = structure_of(draw), [draw()]
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        (none,) = with_counts(given, generator, structure, NO_MARKS, [0])
        assert int(none.sum(1).min()) == 0
        assert bool((none <= given[0]).all())
        (several,) = with_counts(given, generator, structure, SEVERAL_MARKS, [0])
        assert int(several.sum(1).min()) > 1
        assert bool((several >= given[0]).all())
        assert int(several.max()) == 1
    assert with_counts(given, generator, structure, NO_MARKS, [])[0] is given[0]


@pytest.mark.parametrize("marks", [BOOLEANS, INTEGERS])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("(x * marks[..., None]).sum(1)", {NO_MARKS: [1], SEVERAL_MARKS: [1]}),
        ("(x * marks[..., None]).sum(1) / marks.sum(1, True)", {NO_MARKS: [], SEVERAL_MARKS: [1]}),
        ("x[marks.bool()]", {NO_MARKS: [], SEVERAL_MARKS: []}),  # it says how large the output is
        ("x[marks.bool()].reshape(16, 4)", {NO_MARKS: [], SEVERAL_MARKS: []}),
    ],
)
def test_the_module_says_which_numbers_of_marks_it_takes(
    tmp_path: Path, body: str, expected: dict[str, list[int]], marks: str
) -> None:
    path = tmp_path / "problem.py"
    path.write_text(SOURCE.format(body=body, marks=marks))
    instance = instantiate(problems.load(path))
    assert taken(instance, instance.inputs(1), instance.structure) == expected
