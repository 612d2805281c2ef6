"""Finds symmetric, skew-symmetric, Hermitian and skew-Hermitian matrices, and gives other matrices the same symmetry.
(torch)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Symmetry:
    """A symmetry of square matrices: A = `sign` * A^T, or A = `sign` * A^H if it conjugates."""

    sign: Literal[1, -1]
    conjugates: bool = False
    """Whether the conjugate transpose A^H is meant. False for real matrices."""

    def mirrored(self, values: Tensor) -> Tensor:
        """Return the transposes of the matrices, with the sign and the conjugation of this symmetry."""
        transposed = values.mH if self.conjugates else values.mT
        return transposed if self.sign > 0 else -transposed

    def with_mirrored_triangle(self, values: Tensor) -> Tensor:
        """Return the matrices with their lower triangle replaced by the mirrored upper one. The diagonal stays."""
        upper = values.triu(1)
        whole = upper + self.mirrored(upper)
        whole.diagonal(dim1=-2, dim2=-1).copy_(values.diagonal(dim1=-2, dim2=-1))
        return whole

    def imposed(self, values: Tensor) -> Tensor:
        """Return matrices that have this symmetry, with the upper triangles of the given ones.

        Where the symmetry needs it, the diagonal, or its real or imaginary part, becomes zero.
        """
        whole = self.with_mirrored_triangle(values)
        diagonal = whole.diagonal(dim1=-2, dim2=-1)
        if self.conjugates:
            torch.view_as_real(diagonal)[..., 1 if self.sign > 0 else 0].zero_()
        elif self.sign < 0:
            diagonal.zero_()
        return whole


REAL = (Symmetry(1), Symmetry(-1))
COMPLEX = (Symmetry(1, conjugates=True), Symmetry(-1, conjugates=True), *REAL)
"""The symmetries that real and complex matrices may have. If several hold, the first of them counts."""


def symmetry_of(given: Tensor) -> Symmetry | None:
    """Return the symmetry that all square matrices in a real or complex tensor have; None if they have no
    symmetry in common."""
    if given.dim() < 2 or not given.numel() or not given.shape[-1] == given.shape[-2] > 1:
        return None
    if not (given.is_floating_point() or given.is_complex()):
        return None
    values = given.detach()
    return next((each for each in (COMPLEX if values.is_complex() else REAL) if _holds(each, values)), None)


def _holds(symmetry: Symmetry, values: Tensor) -> bool:
    """Return whether all matrices have a symmetry. Their first rows and columns are compared first, to save time."""
    row, column = values[..., :1, :], values[..., :, :1]
    return torch.equal(row, symmetry.mirrored(column)) and torch.equal(values, symmetry.mirrored(values))
