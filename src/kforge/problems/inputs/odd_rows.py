"""Changes a few rows or elements of the inputs at random positions, so that they differ from all others. (torch)

A program that looks at a corner, a row or a sample of its input, and assumes that the rest is similar, fails on them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kforge.problems.inputs.distributions import (
    HUGE,
    KINDS_OF_ROWS,
    LARGE,
    MILD,
    MILD_KINDS_OF_ROWS,
    WILD,
    in_domain,
    in_order,
    overlaps,
    replacing,
)
from kforge.problems.inputs.structure import tensors_of

if TYPE_CHECKING:
    from kforge.problems.inputs.distributions import Distribution, Draw
    from kforge.problems.inputs.structure import Leaf, Structure

FEW, BLOCKS, MOST_ELEMENTS = 8, 64, 8
"""Largest part of an input that is made odd (unlike all other values): one row in FEW; in a vector, one of BLOCKS
blocks; or MOST_ELEMENTS single elements. Hardly any sample of the input contains an odd value."""
MOST_SPOILT_SETS, MOST_SPOILT_ROWS = 4, 2
"""Most sets of inputs with odd rows in a timed block, and most odd rows in a set. Each odd row costs about twelve
operations, which must not take long compared with drawing the inputs."""
LEAST_SAMPLES = 4
"""If the first dimension is shorter than this, no whole sample is made odd, because it would be a large part of the
input."""
WHOLE_SAMPLE = 0.25
"""Chance that a whole sample (position of the first dimension) is made odd besides single rows."""
_Spoil = Callable[[Tensor, "Leaf | None", torch.Generator, random.Random], None]
"""A function that overwrites a few rows or elements of a tensor with odd values."""


def spoil_rows(pool: Sequence[Draw], most: int | None = None) -> _Spoil:
    """Return a function that overwrites a few rows, each with another draw of the pool, and sometimes one whole sample.

    `most` limits the number of rows.
    """

    def spoil(tensor: Tensor, leaf: Leaf | None, generator: torch.Generator, chance: random.Random) -> None:
        rows = math.prod(tensor.shape[:-1])
        count = min(most or len(pool), max(1, rows // FEW))
        if tensor.dim() == 1:  # in a vector: a few neighbours
            start = chance.randrange(tensor.numel())
            places = [tensor[start : start + max(1, tensor.numel() // BLOCKS)]]
        else:
            places = [tensor[_unravelled(row, tensor.shape[:-1])] for row in chance.sample(range(rows), count)]
            if tensor.dim() > 2 and tensor.shape[0] >= LEAST_SAMPLES and chance.random() < WHOLE_SAMPLE:
                places.append(tensor[chance.randrange(tensor.shape[0])])
        for number, draw in enumerate(chance.sample(list(pool), min(len(places), len(pool)))):
            _overwrite(places[-1 - number], draw(places[-1 - number], generator), leaf)

    return spoil


def _unravelled(row: int, shape: Sequence[int]) -> tuple[int, ...]:
    place: list[int] = []
    for size in reversed(shape):
        row, index = divmod(row, size)
        place.insert(0, index)
    return tuple(place)


def _spoil_elements(values: Sequence[float]) -> _Spoil:
    """Return a function that overwrites single elements with values of these magnitudes."""

    def spoil(tensor: Tensor, leaf: Leaf | None, generator: torch.Generator, chance: random.Random) -> None:
        for _ in range(chance.randint(1, MOST_ELEMENTS)):
            place = tensor[tuple(chance.randrange(size) for size in tensor.shape)]
            drawn = torch.randn((), generator=generator, device=generator.device) * chance.choice(values)
            _overwrite(place, drawn, leaf)

    return spoil


def _overwrite(place: Tensor, values: Tensor, leaf: Leaf | None) -> None:
    """Write values to a part of a tensor, moved into the domain of the whole tensor. Structural zeros and infinities
    stay."""
    values = values.to(place.device)
    if leaf is not None:
        values = in_domain(values, leaf.low, leaf.high)
    values = values.to(place.dtype)
    if leaf is None or leaf.keeps_places:
        values = torch.where((place == 0) | ~place.isfinite(), place, values)
    place.copy_(values)


def _odd(spoil: _Spoil) -> Distribution:
    """Return a distribution that overwrites a few rows or elements of a copy of each tensor, by the given function."""

    def replace(given: Tensor, leaf: Leaf | None, generator: torch.Generator) -> Tensor:
        if given.numel() < 2 or overlaps(given) or in_order(leaf):
            return given
        fresh = _copied(given)
        spoil(fresh, leaf, generator, chance_of(generator))
        return fresh.requires_grad_(given.requires_grad)

    return replacing(replace, lambda given, *_: given)


def _copied(given: Tensor) -> Tensor:
    """Return a copy with the same strides."""
    fresh = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=given.device)
    return fresh.copy_(given.detach())


def chance_of(generator: torch.Generator) -> random.Random:
    """Return a Python random generator that is seeded from a torch generator."""
    seed = int(torch.randint(1 << 62, (), generator=generator, device=generator.device))
    return random.Random(seed)  # noqa: S311 - as secret as the generator's seed


def spoil_sets(
    sets: Sequence[list[Any]], structure: Structure, generator: torch.Generator, *, mild: bool, share: float
) -> None:
    """Give about the share `share` of these freshly drawn sets of inputs a few odd rows, in one tensor of each set.

    Tensors are changed in place. A tensor that the problem returns in every draw is replaced by a copy.
    """
    spoil = spoil_rows(MILD if mild else WILD, MOST_SPOILT_ROWS)
    chance = chance_of(generator)
    spoilt = [inputs for inputs in sets if chance.random() < share]
    for inputs in chance.sample(spoilt, min(len(spoilt), MOST_SPOILT_SETS)):
        fit = [
            (tensor, leaf)
            for tensor, leaf in zip(tensors_of(inputs), structure.leaves_of(inputs), strict=True)
            if leaf is not None
            and leaf.kind == "floating"
            and not (leaf.symmetric or leaf.ascending or overlaps(tensor))
            and tensor.numel() > 1
        ]
        if fit:
            tensor, leaf = chance.choice(fit)
            fresh = _copied(tensor).requires_grad_(tensor.requires_grad) if leaf.kept else tensor
            if leaf.kept:
                inputs[:] = pytree.tree_map(partial(_instead, tensor, fresh), inputs)
            with torch.no_grad():
                spoil(fresh, leaf, generator, chance)


def _instead(given: Tensor, fresh: Tensor, value: Any) -> Any:
    return fresh if value is given else value


ODD: Mapping[str, Distribution] = MappingProxyType(
    {"odd_rows": _odd(spoil_rows((*WILD, *KINDS_OF_ROWS))), "odd_elements": _odd(_spoil_elements((HUGE, LARGE, 16.0)))}
)
"""Distributions with odd rows or elements, by name."""
MILDER_ODD: Mapping[str, Distribution] = MappingProxyType(
    {"odd_rows": _odd(spoil_rows((*MILD, *MILD_KINDS_OF_ROWS))), "odd_elements": _odd(_spoil_elements((4.0, 0.0)))}
)
"""Replacements for the distributions of the same name, if those make the reference overflow."""
