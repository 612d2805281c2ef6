"""Makes other values for entries of a module's state: changed slightly, at some positions, or in sign. (torch)"""

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
"""Factors by which one position (a line, a slice or a block) of a weight is multiplied."""
FACTORS_OF_ELEMENTS = (3.0, 4.0)
"""Factors by which a single element of a weight is multiplied. They are larger than FACTORS, because the change must
show in a sum over many elements."""
PLACES = ("element", "column", "row", "slice", "block")
"""Kinds of positions that are changed. A program that samples a few corners of a tensor is least likely to notice the
first two."""
WILD_OF_VECTORS, WILD_OF_MATRICES = (-1.0, 0.0, 8.0), (-1.0, 0.0, 3.0)
"""Factors that give single elements of a weight another sign, zero, or a larger value: WILD_OF_VECTORS for scales,
slopes and biases, WILD_OF_MATRICES for matrices. The last factor is smaller there, because a deep module could
overflow."""
WILD_SHARE_OF_VECTORS, WILD_SHARE_OF_MATRICES = 0.25, 0.0625
"""Share of a weight's elements that get another sign, zero or a larger value: in vectors, and in matrices."""

MANY_ROWS = 512
"""A parameter with more rows than this may be a lookup table, of which a call uses only some rows. So several rows
change at once."""
ROWS_PER_ENLARGED_ROW = 8
"""Of a parameter that is a lookup table, one row is enlarged for every this many rows."""
TINY = 1e-2
"""A parameter is tiny if its norm is less than this share of a usual one. LayerScale starts like that."""
VAST = 1e4
"""If all elements of an entry are larger than this, or infinite, it limits nothing when it is used as a bound."""
ORDINARY = (0.1, 1.0)
"""Range of the values, relative to the usual size, to which tiny entries and entries that limit nothing are changed."""

LARGE = 256.0
"""Factor by which a row of a parameter is enlarged. An exponential of such a value overflows in single precision."""


def is_real_or_complex(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def real_parameters(model: nn.Module) -> set[str]:
    """Return the names of the parameters that are real or complex numbers. Masks and integers that are held as
    parameters are treated as buffers."""
    return {name for name, value in model.named_parameters(remove_duplicate=False) if is_real_or_complex(value)}


def vary_constants(model: nn.Module, likeness: Likeness) -> list[str]:
    """Change all entries that every construction sets to the same values, by up to a quarter. Returns their names.

    Such entries are a norm's weight of ones, a bias of zeros, running statistics, or an identity matrix. Signs are
    kept. Constant buffers with several values are not changed, because they may be tables or masks. Of entries that are
    always equal to each other, all but the first are changed.
    """
    parameters = real_parameters(model)
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
    """Return whether all elements are equal."""
    return bool((value == value.flatten()[0]).all())


def move(value: Tensor, *, zeros: bool = True) -> None:
    """Change every element by up to a quarter of itself. With `zeros`, zeros change by up to a quarter of the mean
    magnitude."""
    noise = VARIATION * (2 * torch.rand(value.shape, device=value.device) - 1).to(value.real.dtype)
    step = value * noise
    if zeros:
        others = value[value != 0].abs()
        finite = others[others.isfinite()]
        scale = float(finite.mean()) if finite.numel() else 1.0
        step = torch.where(value == 0, noise * scale, step)
    value.copy_(torch.where(value.isfinite(), value + step, value))


def change_a_place(value: Tensor, kind: str, chance: random.Random, rows: Tensor | None = None) -> None:
    """Multiply one random position by a factor: an element, a line, a slice or a block, as `kind` says.

    `rows` are the rows that change, instead of a single random one.
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
    """Exchange two random rows, or two elements of a vector. The set of values stays the same."""
    one, other = chance.sample(range(len(value)), 2)
    value[[one, other]] = value[[other, one]]


def some_rows(value: Tensor, part: int | None, chance: random.Random) -> Tensor | None:
    """Return random rows, one in `part`. Returns None if `part` is None or the tensor has few rows."""
    if part is None or not is_long(value):
        return None
    generator = torch.Generator().manual_seed(chance.getrandbits(62))
    return torch.randperm(len(value), generator=generator)[: max(1, len(value) // part)].to(value.device)


def is_mask(value: Tensor) -> bool:
    """Return whether a tensor is boolean, or has only zeros and one other number."""
    if value.dtype == torch.bool:
        return True
    others = value[value != 0]
    return is_real_or_complex(value) and 0 < others.numel() < value.numel() and is_uniform(others)


def has_finite_marks(value: Tensor) -> bool:
    """Return whether a tensor is a mask without infinite numbers, so that its elements can be flipped."""
    return is_mask(value) and (value.dtype == torch.bool or bool(value.isfinite().all()))


def is_ascending(value: Tensor) -> bool:
    """Return whether a tensor is a vector of at least three real numbers in ascending order. They may be edges of
    bins."""
    return value.dim() == 1 and len(value) > 2 and not value.is_complex() and bool((value.diff() > 0).all())


def shuffle(value: Tensor) -> None:
    """Put the numbers of an ascending vector into an order that is not ascending."""
    order = torch.randperm(len(value)).to(value.device)
    value.copy_(value[order] if not is_ascending(value[order]) else value.flip(0))


def is_long(value: Tensor) -> bool:
    """Return whether a tensor has so many rows that it may be a lookup table."""
    return value.dim() > 0 and len(value) > MANY_ROWS


def has_one_sign(value: Tensor) -> bool:
    """Return whether all elements of a real tensor are positive, or all are negative."""
    return value.is_floating_point() and value.numel() > 0 and bool((value > 0).all() or (value < 0).all())


def is_tiny(value: Tensor) -> bool:
    """Return whether a parameter is not zero, but so small that the effect of what it multiplies is lost in a sum."""
    return is_real_or_complex(value) and 0 < float(torch.linalg.vector_norm(value)) < TINY * _usual_norm(value)


def is_vast(value: Tensor) -> bool:
    """Return whether all elements are so large, or infinite, that they limit nothing when they are used as bounds."""
    return value.is_floating_point() and value.numel() > 0 and bool((value.abs() > VAST).all())


def is_no_limit(value: Tensor) -> bool:
    """Return whether these numbers may be bounds that limit nothing: very large, not all negative and not in order.

    Numbers that are all negative and very large are what masks fill in; a program may rely on them.
    """
    return is_vast(value) and bool((value > 0).any()) and not is_ascending(value)


def make_ordinary(value: Tensor) -> None:
    """Give an entry of a module's state random values of usual size; signs and zeros are kept."""
    low, high = ORDINARY
    drawn = low + (high - low) * torch.rand(value.shape, device=value.device)
    scale = _usual_norm(value) / value.numel() ** 0.5
    value.copy_(torch.sgn(value) * (drawn * scale).to(value.real.dtype))


def show_tiny_entries(model: nn.Module) -> None:
    """Give every tiny entry of a module's state values of usual size."""
    with seeded(0), torch.no_grad():
        for value in model.state_dict().values():
            if value.numel() and is_tiny(value):
                make_ordinary(value)


def _usual_norm(value: Tensor) -> float:
    """Return the norm of a vector whose elements are about 1, or of a matrix whose rows have norms of about 1."""
    sizes = [size for size in value.shape if size > 1]
    return float(sizes[0] ** 0.5) if sizes else 1.0


def make_wild(value: Tensor) -> None:
    """Multiply some elements by factors that change the sign, give zero, or enlarge; at least one element in a small
    tensor."""
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
    """Multiply one row, or one element of a vector, by LARGE. In a lookup table, multiply one row in `part`."""
    rows = some_rows(value, part, chance)
    if rows is not None:
        value[rows] *= LARGE
        return
    along = value.dim() - 1 if value.dim() > 1 else value.dim()
    value[tuple(chance.randrange(size) for size in value.shape[:along])] *= LARGE


def flip(value: Tensor, *, fewer: bool = False) -> None:
    """Flip about an eighth of a mask's elements, at least one, so that more elements are set than before, or `fewer`.

    Zeros become the mask's other number, and the other way round. In a tensor that is not a mask, numbers near one
    become zero, and numbers near zero become one.
    """
    flipped = torch.rand(value.shape, device=value.device) < 1 / 8
    flipped.view(-1)[int(torch.randint(value.numel(), ()))] = True
    wanted = (value != 0) == fewer
    if is_mask(value) and wanted.any() and (flipped & wanted).sum() <= (flipped & ~wanted).sum():
        # if as many elements were cleared as set, a program that relies on their number would stay undetected
        flipped &= wanted
        places = wanted.reshape(-1).nonzero()
        flipped.view(-1)[places[int(torch.randint(len(places), ()))]] = True
    if value.dtype == torch.bool:
        value.logical_xor_(flipped)
    elif is_mask(value):
        mark = value[value != 0].flatten()[0]
        value.copy_(torch.where(flipped, torch.where(value == 0, mark, torch.zeros_like(mark)), value))
    else:
        value.copy_(torch.where(flipped, 1 - value.round(), value))
