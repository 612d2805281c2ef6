"""Makes other values for the entries of a module's state: slightly changed, changed in places, or of other signs.
(torch)"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kforge.evaluation.constants import VARIATION
from kforge.problems.randomness import seeded

if TYPE_CHECKING:
    import random

    from torch import Tensor, nn

    from kforge.problems.likeness import Likeness

FACTORS = (0.3, 0.5, 1.5, 2.0)
"""Factors for one changed position of a parameter."""
FACTORS_OF_ELEMENTS = (3.0, 4.0)
"""Factors for a single element, whose change must show in a sum over many."""
PLACES = ("element", "column", "row", "slice", "block")
"""Kinds of changed positions. A program that samples a few corners of a tensor is least likely to see the first two."""
WILD_OF_VECTORS, WILD_OF_MATRICES = (-1.0, 0.0, 8.0), (-1.0, 0.0, 3.0)
"""Factors of single elements: other signs, zeros, and several times more. Scales, slopes and biases are vectors; where
elements of matrices are much larger, a deep module overflows."""
WILD_SHARE_OF_VECTORS, WILD_SHARE_OF_MATRICES = 0.25, 0.0625

MANY_ROWS = 512
"""A call may look up only some rows of a parameter with more rows than this. Then several rows change at once."""
EIGHTH = 8
"""In a parameter with many rows, one row in eight becomes far larger."""
TINY = 1e-2
"""A parameter is tiny where its sum is less than this share of its inputs: LayerScale begins like that."""
VAST = 1e4
"""An entry whose elements are all larger than this, or infinite, is no limit for most tensors."""
ORDINARY = (0.1, 1.0)
"""The sum, element by element, to which a tiny parameter, or one that is no limit, is scaled."""

LARGE = 256.0
"""Factor of an enlarged row of a parameter: exp overflows in single precision with it."""


def is_real_or_complex(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def vary_constants(model: nn.Module, likeness: Likeness) -> list[str]:
    """Change what no draw decides by up to a quarter, zeros as well. Returns the names.

    That is a norm's weight of ones, a bias of zeros, running statistics, a matrix that begins as the identity. Signs
    are kept. Fixed buffers with several values stay: they may be tables or masks. Of entries that are always equal all
    but the first are changed, so that they differ.
    """
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    varied = []
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if not is_real_or_complex(value) or not value.numel():
                continue
            constant = is_uniform(value) or (name in parameters and name in likeness.fixed)
            if constant or name in likeness.copies:
                move(value)
                varied.append(name)
    return varied


def is_uniform(value: Tensor) -> bool:
    return bool((value == value.flatten()[0]).all())


def move(value: Tensor, *, zeros: bool = True) -> None:
    """Change every element by up to a quarter of itself; zeros, where they may change, by a quarter of a usual
    element."""
    noise = VARIATION * (2 * torch.rand(value.shape, device=value.device) - 1).to(value.real.dtype)
    step = value * noise
    if zeros:
        others = value[value != 0].abs()
        finite = others[others.isfinite()]
        scale = float(finite.mean()) if finite.numel() else 1.0
        step = torch.where(value == 0, noise * scale, step)
    value.copy_(torch.where(value.isfinite(), value + step, value))


def change_a_place(value: Tensor, kind: str, chance: random.Random, rows: Tensor | None = None) -> None:
    """Multiply one element, one line along the first or the last dimension, one slice or one block, at random.

    `rows`: numbers of the rows that change, instead of a single random one.
    """
    along = {"column": 0, "row": value.dim() - 1}.get(kind)
    across = chance.randrange(value.dim()) if value.dim() else 0
    place: list[slice] = []
    for dimension, size in enumerate(value.shape):
        start = chance.randrange(size)
        is_whole = dimension == along or (kind == "slice" and dimension != across)
        if is_whole and value.dim() > 1:
            place.append(slice(None))
        elif kind == "block":
            place.append(slice(start, chance.randint(start + 1, min(size, start + 1 + size // 4))))
        else:
            place.append(slice(start, start + 1))
    where: tuple[slice | Tensor, ...] = tuple(place)
    if rows is not None and place[0] != slice(None):
        where = (rows, *place[1:])
    value[where] *= chance.choice(FACTORS_OF_ELEMENTS if kind == "element" else FACTORS)


def exchange_rows(value: Tensor, chance: random.Random) -> None:
    """Exchange two random rows, or two elements of a vector: the set of values stays the same."""
    one, other = chance.sample(range(len(value)), 2)
    value[[one, other]] = value[[other, one]]


def some_rows(value: Tensor, part: int | None, chance: random.Random) -> Tensor | None:
    """Return random rows, one in `part`; None if the tensor has few rows or only one row is to change."""
    if part is None or not is_long(value):
        return None
    generator = torch.Generator().manual_seed(chance.getrandbits(62))
    return torch.randperm(len(value), generator=generator)[: max(1, len(value) // part)].to(value.device)


def is_mask(value: Tensor) -> bool:
    """Return whether a tensor has only zeros and one other value, or only true or only false."""
    if value.dtype == torch.bool:
        return True
    others = value[value != 0]
    return is_real_or_complex(value) and 0 < others.numel() < value.numel() and is_uniform(others)


def has_one_mark(value: Tensor) -> bool:
    """Whether each row of a matrix holds a single one (or true), and zeros otherwise."""
    if value.dim() < 2 or value.shape[-1] < 2 or not (value.is_floating_point() or value.dtype == torch.bool):
        return False
    marks = value != 0
    return bool((marks.sum(-1) == 1).all()) and bool((value[marks] == 1).all())


def is_ascending(value: Tensor) -> bool:
    """Whether these are at least three real numbers in ascending order, in one dimension: they may be edges of bins."""
    return value.dim() == 1 and len(value) > 2 and not value.is_complex() and bool((value.diff() > 0).all())


def is_long(value: Tensor) -> bool:
    return value.dim() > 0 and len(value) > MANY_ROWS


def has_one_sign(value: Tensor) -> bool:
    """Return whether all elements of a real tensor are above zero, or all below."""
    return value.is_floating_point() and value.numel() > 0 and bool((value > 0).all() or (value < 0).all())


def is_tiny(value: Tensor) -> bool:
    """Return whether a parameter is so small, and not zero, that a sum with it hides what it multiplies."""
    return is_real_or_complex(value) and 0 < float(torch.linalg.vector_norm(value)) < TINY * _usual_norm(value)


def is_vast(value: Tensor) -> bool:
    """Return whether all elements are so large, or infinite, that a limit of this size bounds nothing."""
    return value.is_floating_point() and value.numel() > 0 and bool((value.abs() > VAST).all())


def is_no_limit(value: Tensor) -> bool:
    """Return whether these numbers may be limits that bound nothing yet, and not ordered ones.

    Numbers that are all negative are what masks fill in (minus infinity), and a program may know that they are.
    """
    return is_vast(value) and bool((value > 0).any()) and not is_ascending(value)


def make_ordinary(value: Tensor) -> None:
    """Give a tiny entry, or one that is no limit, ordinary values; signs and zeros stay."""
    low, high = ORDINARY
    drawn = low + (high - low) * torch.rand(value.shape, device=value.device)
    scale = _usual_norm(value) / value.numel() ** 0.5
    value.copy_(torch.sgn(value) * (drawn * scale).to(value.real.dtype))


def show_tiny_entries(model: nn.Module) -> None:
    """Give every tiny entry of a model's state ordinary values."""
    with seeded(0), torch.no_grad():
        for value in model.state_dict().values():
            if value.numel() and is_tiny(value):
                make_ordinary(value)


def _usual_norm(value: Tensor) -> float:
    """Return the norm of a vector of elements about one, or of a matrix of which each row sums up to about one."""
    sizes = [size for size in value.shape if size > 1]
    return float(sizes[0] ** 0.5) if sizes else 1.0


def make_wild(value: Tensor) -> None:
    """Give single elements other signs, zeros or values several times larger; always at least one to three elements."""
    vector = value.dim() < 2
    factors = WILD_OF_VECTORS if vector else WILD_OF_MATRICES
    share = WILD_SHARE_OF_VECTORS if vector else WILD_SHARE_OF_MATRICES
    drawn = torch.rand(value.shape, device=value.device)
    for place in torch.randint(value.numel(), (len(factors),)).tolist():  # at least these, in small tensors, too
        drawn.view(-1)[place] *= share
    for number, factor in enumerate(factors):
        chosen = (drawn >= share * number / len(factors)) & (drawn < share * (number + 1) / len(factors))
        value.copy_(torch.where(chosen, value * factor, value))


def enlarge_a_row(value: Tensor, chance: random.Random, part: int | None = None) -> None:
    """Multiply one line along the last dimension, or one element of a vector; in a long parameter, one row in
    `part`."""
    rows = some_rows(value, part, chance)
    if rows is not None:
        value[rows] *= LARGE
        return
    along = value.dim() - 1 if value.dim() > 1 else value.dim()
    value[tuple(chance.randrange(size) for size in value.shape[:along])] *= LARGE


def flip(value: Tensor) -> None:
    """Flip an eighth of a mask's elements, at least one; numbers near one become zero, and those near zero one."""
    flipped = torch.rand(value.shape, device=value.device) < 1 / 8
    flipped.view(-1)[int(torch.randint(value.numel(), ()))] = True
    if value.dtype == torch.bool:
        value.logical_xor_(flipped)
    else:
        value.copy_(torch.where(flipped, 1 - value.round(), value))
