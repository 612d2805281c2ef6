"""Perturbs inputs by some units in the last place, to see how much rounding may change a result. (torch)"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.evaluation.constants import SHAKEN_UNITS
from kforge.problems.inputs.symmetry import symmetry_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class Scale(Enum):
    """What the units in the last place are relative to: the element itself, the largest element of its matrix, or the
    largest elements of its row and of its column."""

    ELEMENT = "element"
    MATRIX = "matrix"
    ROW_AND_COLUMN = "row and column"


def shaken(inputs: Any, seed: int, scale: Scale = Scale.ELEMENT, *, exact: Sequence[float] = ()) -> list[Any]:
    """Return the inputs with every number changed by up to SHAKEN_UNITS units in the last place, up or down.

    `scale` says what these units are relative to. Zeros stay zero, so triangles of zeros are kept. Symmetric,
    skew-symmetric and Hermitian matrices stay so if `scale` is not ELEMENT. `exact` are numbers that the module may
    compare inputs with, such as the code of a missing reading; they stay if most of a tensor is other numbers.
    """

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf.clone()
        generator = torch.Generator(leaf.device).manual_seed(seed)
        units = _units(leaf, generator)
        size = leaf.abs()
        if scale is not Scale.ELEMENT and leaf.dim() >= 2 and leaf.numel():
            size = _size_of_matrix(size, scale).masked_fill(size == 0, 0.0)
            units = _as_symmetric_as(leaf, units)
        elif exact and leaf.is_floating_point():
            size = size.masked_fill(_staying(leaf, exact), 0.0)
        return torch.addcmul(leaf, size.to(leaf.dtype), units, value=SHAKEN_UNITS * torch.finfo(leaf.dtype).eps)

    moved: list[Any] = pytree.tree_map(move, list(inputs))
    return moved


def _staying(leaf: torch.Tensor, exact: Sequence[float]) -> torch.Tensor:
    """Return which elements are one of these numbers; none if these are most of the elements that are not zero."""
    stays = torch.isin(leaf, torch.tensor(exact, dtype=leaf.dtype, device=leaf.device)) & (leaf != 0)
    return stays & (2 * stays.sum() <= (leaf != 0).sum())


def _units(leaf: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return random numbers between -1 and 1 in the shape of a tensor."""
    shape = (*leaf.shape, 2) if leaf.is_complex() else leaf.shape
    units = 2 * torch.rand(shape, generator=generator, device=leaf.device) - 1
    return (torch.view_as_complex(units) if leaf.is_complex() else units).to(leaf.dtype)


def _size_of_matrix(size: torch.Tensor, scale: Scale) -> torch.Tensor:
    """Return for each element of a matrix the magnitude to which its perturbation is relative."""
    whole = size.amax(dim=(-2, -1), keepdim=True)
    if scale is Scale.MATRIX:
        return whole
    rows = size.amax(dim=-1, keepdim=True)
    columns = size.amax(dim=-2, keepdim=True) / whole.clamp(min=torch.finfo(size.dtype).tiny)
    return rows * columns


def _as_symmetric_as(leaf: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
    """Return the random numbers with the symmetry of the tensor, if it has one, so that the perturbed tensor keeps
    it."""
    symmetry = symmetry_of(leaf)
    return units if symmetry is None else (units + symmetry.mirrored(units)) / 2
