"""Gives other numbers of true elements to masks that have a fixed number of them in each row. (torch)

A mask whose rows have one true element (a mark) in every draw, or another fixed number of marks, keeps that number in
all other cases, because a module may need it (a one-hot code). But a module that adds up the marked elements accepts
any number of marks, and a program that looks for one mark only is wrong for its user. So there is a case with rows
without marks (`no_marks`), and one with rows of several marks (`several_marks`). Whether the module accepts them is
tried: its outputs must be finite and have the same shapes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from kforge.problems.inputs.discrete import random_mask, rows_of, varying
from kforge.problems.inputs.trial import SEED, on_host, output_shapes
from kforge.problems.tensors import cloned

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import Tensor

    from kforge.problems.inputs.structure import Leaf, Structure
    from kforge.problems.instance import Instance

NO_MARKS, SEVERAL_MARKS = "no_marks", "several_marks"
MARK_COUNTS = (NO_MARKS, SEVERAL_MARKS)
"""Names of the cases in which masks have other numbers of true elements per row."""


def counted(structure: Structure) -> list[int]:
    """Return the positions of the masks whose rows have the same number of true elements in every draw."""
    return [place for place, leaf in enumerate(structure.leaves) if _is_counted(leaf)]


def _is_counted(leaf: Leaf) -> bool:
    """Return whether a tensor is a mask whose number of true elements is the same in every draw."""
    if leaf.kind == "boolean":
        return leaf.one_true and leaf.varies
    ones = leaf.kind == "integer" and (leaf.low, leaf.high) == (0, 1) and leaf.total is not None
    return ones and leaf.varies and not (leaf.ascending or leaf.distinct)


def taken(instance: Instance, inputs: list[Any], structure: Structure) -> dict[str, list[int]]:
    """Return for each case the positions of the masks for which the module accepts other numbers of true elements.

    Raises ProblemError if the module cannot be constructed.
    """
    places = counted(structure)
    if not places:
        return {name: [] for name in MARK_COUNTS}
    model, inputs = on_host(instance, inputs)
    shapes = output_shapes(model, cloned(inputs))

    def takes(name: str, place: int) -> bool:
        other = with_counts(cloned(inputs), torch.Generator().manual_seed(SEED), structure, name, [place])
        return shapes is not None and output_shapes(model, other) == shapes

    return {name: [place for place in places if takes(name, place)] for name in MARK_COUNTS}


def with_counts(
    inputs: Sequence[Any], generator: torch.Generator, structure: Structure, name: str, places: Collection[int]
) -> list[Any]:
    """Return the inputs with other numbers of true elements in the rows of these masks. `name` is the case's."""
    leaves = [leaf if place in places else replace(leaf, kind="other") for place, leaf in enumerate(structure.leaves)]
    return _CHANGES[name](inputs, generator, structure.with_leaves(leaves))


def _without_marks(given: Tensor, leaf: Leaf, generator: torch.Generator) -> Tensor:
    """Return the mask with no true element in about half of its rows, at least in one."""
    del leaf
    rows = rows_of(given)
    count = rows.shape[0]
    chosen = torch.rand(count, 1, generator=generator, device=generator.device) < 0.5
    chosen[int(torch.randint(count, (), generator=generator, device=generator.device))] = True
    return rows.masked_fill(chosen.to(rows.device), 0).reshape(given.shape)


def _with_more_marks(given: Tensor, leaf: Leaf, generator: torch.Generator) -> Tensor:
    """Return the mask with at least one more true element in each row."""
    del leaf
    rows, more = rows_of(given), rows_of(random_mask(given, generator))
    free = torch.rand(rows.shape, generator=generator, device=generator.device).to(rows.device)
    another = free.masked_fill(rows != 0, -1).argmax(1, keepdim=True)
    return (rows | more.scatter(1, another, value=True).to(rows.dtype)).reshape(given.shape)


_CHANGES = {NO_MARKS: varying(_without_marks, _is_counted), SEVERAL_MARKS: varying(_with_more_marks, _is_counted)}
"""For each case, the variation that changes the numbers of true elements."""
