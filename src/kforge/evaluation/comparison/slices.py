"""Measures the error of every slice of an output on the slice's own scale, so that a small channel must be right.
(torch)

A slice is the part of an output at one position of a dimension (a channel, a head), or at one position of each of two
dimensions (a channel of one head). A module makes a slice small by a small weight, a mask or a decay, in every call. A
program could compute that slice with few correct bits, and the error would be small beside the whole output.

The error of a slice is the norm of its smaller differences divided by the norm of the right values, over a sample. It
may be `LOCAL_FACTOR` times the floor, or a multiple of torch's own error there. A slice that consists of few large
elements is not judged, because torch's own error in these few may be small by chance.
"""

from __future__ import annotations

import itertools
import math
import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from kforge.evaluation.constants import LEAST_SCALE

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_ELEMENTS = 16
"""Fewest elements of a slice of an output that is judged. Smaller slices of one dimension are joined with their
neighbours; smaller slices of a pair of dimensions are not judged."""
SAMPLED_ELEMENTS, SAMPLED_SLICES = 64, 1024
"""SAMPLED_ELEMENTS: most elements of a slice that are examined. SAMPLED_SLICES: most slices of one dimension, or of a
pair of dimensions."""
KEPT_SHARE = 0.75
"""Share of the differences in a slice of an output that counts; the largest ones are left out. Where sums cancel, a few
elements are off by any amount, in torch and in an honest program. Other checks (rows, runs) find a slice that is partly
wrong."""
LEAST_WEIGHT = 4.0
"""A slice is judged if it consists of at least this many elements of similar size: the square of its sum of squares,
divided by its sum of fourth powers."""


@dataclass(frozen=True)
class Slices:
    """Slices of one output that are so small that a difference that is fine for the whole output may be an error in
    them."""

    index: torch.Tensor
    """Positions of the sampled elements in the flattened output, one row for each slice."""
    exact: torch.Tensor
    norm: torch.Tensor
    number: torch.Tensor
    """Number of each slice among all slices of its dimension or dimensions."""
    name_of: Callable[[int], str]
    """Returns the text that names a slice in a message, by its number."""

    def __len__(self) -> int:
        return len(self.norm)

    def errors(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the error of each slice on the slice's own scale. The caller limits it to 1."""
        apart = (flat[self.index].double() - self.exact).abs_().sort(dim=1).values
        norm: torch.Tensor = torch.linalg.vector_norm(apart[:, : int(KEPT_SHARE * apart.shape[1])], dim=1)
        return norm / self.norm

    def name(self, part: int) -> str:
        return self.name_of(int(self.number[part]))


def small_slices(flat: torch.Tensor, shape: tuple[int, ...], small: float, sample: int) -> list[Slices]:
    """Return the slices of an output whose root mean square is below `small`. `sample` selects one of the random
    samples."""
    found = []
    for places in _places(shape, sample):
        index = places.index.to(flat.device)
        exact = flat.index_select(0, index.reshape(-1)).view(index.shape).double()
        squares = exact.square()
        sums, root = squares.sum(dim=1), math.sqrt(index.shape[1])
        norm = sums.sqrt()
        counts = (norm > LEAST_SCALE * root) & (norm < small * root)
        if not bool(counts.any()):
            continue
        # divided first, because fourth powers of tiny numbers underflow
        shares = squares / sums.clamp(min=LEAST_SCALE**2)[:, None]
        counts &= shares.square().sum(dim=1) * LEAST_WEIGHT <= 1
        if bool(counts.any()):
            at = counts.nonzero().flatten()
            found.append(Slices(index[at], exact[at], norm[at], at, places.name))
    return found


@dataclass(frozen=True)
class _Places:
    """The positions of the slices of an output along one dimension, or along a pair of dimensions."""

    dimensions: tuple[int, ...]
    numbers: torch.Tensor
    """The first position of each slice along each of the dimensions."""
    width: int
    """Number of neighbouring positions that make up one slice."""
    index: torch.Tensor
    """Positions of the sampled elements in the flattened output, one row for each slice."""

    def name(self, number: int) -> str:
        places = self.numbers[number].tolist()
        if len(places) > 1:
            return f"slice {places} of dimensions {list(self.dimensions)}"
        end = "" if self.width == 1 else f" to {places[0] + self.width - 1}"
        return f"slice {places[0]}{end} of dimension {self.dimensions[0]}"


@lru_cache(maxsize=64)
def _places(shape: tuple[int, ...], sample: int) -> list[_Places]:
    """Return the positions of the slices of each dimension and each pair of dimensions."""
    del sample  # part of the cache key only
    count, many = math.prod(shape), [at for at, size in enumerate(shape) if size > 1]
    if count < 2 * LEAST_ELEMENTS:  # a slice would be the whole output, or have too few elements
        return []
    generator = torch.Generator().manual_seed(secrets.randbits(62))
    found = []
    for dimensions in [*((at,) for at in many), *itertools.combinations(many, 2)]:
        held = count // math.prod(shape[at] for at in dimensions)
        if held >= LEAST_ELEMENTS or len(dimensions) == 1:
            found.append(_places_along(shape, dimensions, held, generator))
    return found


def _places_along(
    shape: tuple[int, ...], dimensions: tuple[int, ...], held: int, generator: torch.Generator
) -> _Places:
    """Return the positions of the slices of one dimension, or of a pair. `held` is the number of elements at one
    position."""
    strides = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
    sizes = [shape[at] for at in dimensions]
    width = min(sizes[0], -(-LEAST_ELEMENTS // held))
    slices = -(-sizes[0] // width) if len(sizes) == 1 else math.prod(sizes)
    chosen = _some(slices, SAMPLED_SLICES, generator)
    if len(sizes) == 1:
        numbers = (chosen * width).clamp(max=sizes[0] - width)[:, None]
    else:
        numbers = torch.stack([chosen // sizes[1], chosen % sizes[1]], dim=1)
    first = (numbers * torch.tensor([strides[at] for at in dimensions])).sum(dim=1)
    rest = _some(held, SAMPLED_ELEMENTS, generator)
    offset = torch.zeros_like(rest)
    for at in reversed(range(len(shape))):
        if at not in dimensions:
            offset += rest % shape[at] * strides[at]
            rest = rest // shape[at]
    along = torch.arange(width) * strides[dimensions[0]]
    offset = (along[:, None] + offset).reshape(-1)
    return _Places(dimensions, numbers, width, first[:, None] + offset)


def _some(count: int, most: int, generator: torch.Generator) -> torch.Tensor:
    """Return the numbers from 0 to `count` - 1, or `most` random ones of them if there are more."""
    return torch.arange(count) if count <= most else torch.randint(count, (most,), generator=generator)
