"""The error of every slice of an output on the slice's own scale: a small head or channel must be right. (torch)

A slice is what one place along a dimension holds (a channel, a head, a position), or one place along each of two
dimensions (a channel of one head). A module makes a slice small by a small weight, a mask or a decay that is there in
every call. A program could compute that slice with few bits, and the error would be small beside the whole output.

The error of a slice is the norm of the smaller differences divided by the norm of the truth, over a sample of it. It
may be `LOCAL_FACTOR` times the floor, or as many times torch's own error there as a caller allows. A slice that few
elements make up is not judged: its error is that of these elements, and torch's own there may be small by chance.
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
"""A slice with fewer elements is joined with the next ones along its dimension; one of two dimensions has no error."""
SAMPLED_ELEMENTS, SAMPLED_SLICES = 64, 1024
"""Most elements of a slice that are looked at, and most slices of one dimension, or of two, at random places."""
KEPT_SHARE = 0.75
"""The largest differences of a slice are left out, all but this share: where sums cancel, a few elements are off by any
amount, in torch as in a program, and not by the same. Rows and runs show what is wrong in a part of a slice."""
LEAST_WEIGHT = 4.0
"""A slice is judged where at least this many elements make it up: its sum of squares, squared, divided by its sum of
fourth powers."""


@dataclass(frozen=True)
class Slices:
    """Slices of one output that are so small that a given difference matters to them."""

    index: torch.Tensor
    """Flat indices of the sampled elements: a row for each slice."""
    exact: torch.Tensor
    norm: torch.Tensor
    number: torch.Tensor
    """Number of each slice among all of its kind."""
    name_of: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.norm)

    def errors(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the error of each slice; the caller limits it to one."""
        apart = (flat[self.index].double() - self.exact).abs_().sort(dim=1).values
        norm: torch.Tensor = torch.linalg.vector_norm(apart[:, : int(KEPT_SHARE * apart.shape[1])], dim=1)
        return norm / self.norm

    def name(self, part: int) -> str:
        return self.name_of(int(self.number[part]))


def small_slices(flat: torch.Tensor, shape: tuple[int, ...], small: float, sample: int) -> list[Slices]:
    """Return the slices with a scale below `small`; `sample` numbers the random positions."""
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
        # of numbers near 1e-32 a fourth power is zero
        shares = squares / sums.clamp(min=LEAST_SCALE**2)[:, None]
        counts &= shares.square().sum(dim=1) * LEAST_WEIGHT <= 1
        if bool(counts.any()):
            at = counts.nonzero().flatten()
            found.append(Slices(index[at], exact[at], norm[at], at, places.name))
    return found


@dataclass(frozen=True)
class _Places:
    """The positions of the slices of one dimension, or of two."""

    dimensions: tuple[int, ...]
    numbers: torch.Tensor
    """The first position of each slice along each of the dimensions."""
    width: int
    """Number of positions along the dimension that make up one slice."""
    index: torch.Tensor

    def name(self, number: int) -> str:
        places = self.numbers[number].tolist()
        if len(places) > 1:
            return f"slice {places} of dimensions {list(self.dimensions)}"
        end = "" if self.width == 1 else f" to {places[0] + self.width - 1}"
        return f"slice {places[0]}{end} of dimension {self.dimensions[0]}"


@lru_cache(maxsize=64)
def _places(shape: tuple[int, ...], sample: int) -> list[_Places]:
    del sample  # part of the cache key only
    count, many = math.prod(shape), [at for at, size in enumerate(shape) if size > 1]
    if count < 2 * LEAST_ELEMENTS:  # the whole, or too little of it
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
    """Return the positions along a dimension. `held`: elements at one position."""
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
    return torch.arange(count) if count <= most else torch.randint(count, (most,), generator=generator)
