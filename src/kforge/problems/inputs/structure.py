"""Finds the structure of a problem's inputs: what several draws have in common. Everything else is data. (torch)

Zeros, infinities, masks and indices at the same positions for every seed belong to the problem (a triangular matrix, a
causal mask, positions), and a program may rely on them. What varies with the seed is data. A tensor with one value
throughout has no structure: a state of zeros or a mask that is all true is data as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kforge.problems.inputs.places import Places, paths_of
from kforge.problems.inputs.symmetry import Symmetry, symmetry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Kind = Literal["floating", "integer", "boolean", "other"]
Scalar = bool | int | float | complex | str
"""An argument of a call that is not a tensor: a Python number, flag or string."""
LARGE = 1 << 24
"""Inputs with more elements than this are drawn only twice, because they cannot agree by chance."""


MOST_PLACES = 1 << 28
"""Integers larger than this, and larger than any input, are not indices. If all of them differ, that may be chance."""
LEAST_IN_ORDER = 4
"""Fewest floating-point numbers in a row that count as ascending. Fewer may be ascending by chance."""


@dataclass(frozen=True)
class Leaf:
    """Facts about one input tensor that hold for all draws of a problem's inputs so far."""

    kind: Kind
    low: float
    """Smallest finite value in all draws; NaN if no value is finite."""
    high: float
    """Largest finite value in all draws; NaN if no value is finite."""
    uniform: bool
    """Whether all elements of the tensor are equal, in every draw."""
    special: bool
    """Whether some elements, but not all, are zero, infinite or NaN."""
    fixed_places: bool = True
    """Whether zeros, infinities and NaN are at the same positions in every draw."""
    fixed: bool = True
    """Whether the tensor has the same values in every draw."""
    symmetry: Symmetry | None = None
    """The symmetry of the real or complex matrices that it holds. Matrices with one value throughout have none."""
    kept: bool = False
    """Whether every draw returns the same memory. The problem keeps the tensor, so it must not be written to."""
    ascending: bool = False
    """Whether the rows are in ascending order."""
    distinct: bool = False
    """Whether no row contains a value twice."""
    one_true: bool = False
    """Whether every row of a boolean tensor has exactly one true element."""
    total: float | None = None
    """The sum of all integers, if it is the same in every draw; otherwise None."""

    @property
    def symmetric(self) -> bool:
        """Whether it holds symmetric, Hermitian, skew-symmetric or skew-Hermitian matrices."""
        return self.symmetry is not None

    @property
    def varies(self) -> bool:
        """Whether an integer or boolean tensor is data, so that other values may be tried."""
        if self.kind == "boolean":
            return not self.fixed or self.uniform
        ordered = self.ascending or self.distinct
        return self.kind == "integer" and (
            self.is_one_number or (self.low < self.high and not (self.fixed and ordered))
        )

    @property
    def is_one_number(self) -> bool:
        """Whether all integers of all draws are one number that is not negative: a mask of ones, lengths, a
        position."""
        return self.kind == "integer" and 0 <= self.low == self.high

    @property
    def keeps_places(self) -> bool:
        """Whether zeros, infinities and NaN belong to the problem, so that they must stay at their positions."""
        return self.special and self.fixed_places


class Structure:
    """The structure of a problem's inputs: facts about all tensors, in order, and the types of all scalars."""

    def __init__(
        self,
        leaves: Sequence[Leaf],
        scalars: Sequence[type] = (),
        *,
        shared: bool = False,
        places: Places | None = None,
    ) -> None:
        self.leaves = tuple(leaves)
        """The facts about each place. A place is one tensor, or all tensors of a list whose length changes
        (`places.py`)."""
        self.scalars = tuple(scalars)
        """The types of the Python numbers, flags and strings among the inputs."""

        self.shared = shared
        """Whether a tensor is given twice, or a dimension is expanded. This stays the same in every case."""
        self._places = places

    @classmethod
    def observed(cls, draw: Callable[[int], list[Any]], seeds: Sequence[int]) -> Structure:
        """Return the structure that draws from these seeds have in common. Two draws are in memory at a time. Raises
        what `draw` raises."""
        given = draw(seeds[0])
        scalars = [type(leaf) for leaf in pytree.tree_leaves(given) if isinstance(leaf, Scalar)]
        paths = [path for path, _ in paths_of(given)]
        known, first = Places([paths_of(given)]), tensors_of(given)
        del given
        places = max([MOST_PLACES, *(tensor.numel() for tensor in first)])
        leaves = [_seen_alone(tensor, places) for tensor in first]
        enough = 2 if sum(tensor.numel() for tensor in first) > LARGE else len(seeds)
        for seed in seeds[1:enough]:
            given = draw(seed)
            if [path for path, _ in paths_of(given)] != paths:
                del given
                return cls._of_changing_lists(draw, seeds[:enough], scalars, places)
            seen = zip(leaves, first, tensors_of(given), strict=True)
            leaves = [_seen_again(*each, places) for each in seen]
        return cls(leaves, scalars, shared=_share(first), places=known)

    @classmethod
    def _of_changing_lists(
        cls, draw: Callable[[int], list[Any]], seeds: Sequence[int], scalars: Sequence[type], most: int
    ) -> Structure:
        """Return the structure of inputs whose number of tensors changes. `most` is one more than the largest integer
        that may be an index."""
        places = Places([[(path, tensor) for path, tensor in paths_of(draw(seed))] for seed in seeds])
        facts: dict[int, tuple[Leaf, Tensor]] = {}
        shared = False
        for seed in seeds:
            given = draw(seed)
            tensors = tensors_of(given)
            shared |= _share(tensors)
            for place, tensor in zip(places.of(given), tensors, strict=True):
                if place is None:
                    continue
                leaf, first = facts.get(place, (None, tensor))
                if leaf is None or not first.numel():
                    facts[place] = _seen_alone(tensor, most), tensor
                elif tensor.numel():
                    facts[place] = _seen_again(leaf, first, tensor, most), first
        # the problem may keep tensors of a list and return them at another position, so they are never written to
        leaves = [replace(facts[place][0], kept=True) for place in range(len(places))]
        return cls(leaves, scalars, shared=shared, places=places)

    def with_leaves(self, leaves: Sequence[Leaf]) -> Structure:
        """Return the same structure with other facts about the tensors."""
        return Structure(leaves, self.scalars, shared=self.shared, places=self._places)

    def places_of(self, inputs: Sequence[Any]) -> list[int | None]:
        """Return for each tensor of these inputs, in order, the number of its facts in `leaves`; None if nothing is
        known about it."""
        count = len(tensors_of(inputs))
        known = self._places
        if known is None or (not known.change and count == len(self.leaves)):
            return [place if place < len(self.leaves) else None for place in range(count)]
        return known.of(inputs)

    def leaves_of(self, inputs: Sequence[Any]) -> list[Leaf | None]:
        """Return what is known about each tensor of these inputs, in order."""
        return [None if place is None else self.leaves[place] for place in self.places_of(inputs)]

    def has(self, *kinds: Kind) -> bool:
        """Return whether a tensor of one of these kinds is among the inputs."""
        return any(leaf.kind in kinds for leaf in self.leaves)

    @property
    def has_moving_places(self) -> bool:
        """Whether zeros, infinities or NaN of a floating-point tensor are at other positions for another seed."""
        return any(leaf.kind == "floating" and leaf.special and not leaf.fixed_places for leaf in self.leaves)


def tensors_of(inputs: Sequence[Any]) -> list[Tensor]:
    """Return the tensors of nested inputs in order. A tensor that is given twice is listed twice."""
    return [leaf for leaf in pytree.tree_leaves(list(inputs)) if isinstance(leaf, Tensor)]


def first_of_places(structure: Structure, inputs: Sequence[Any]) -> dict[int, int]:
    """Return for each place the number of its first tensor that is not empty; without places that have none."""
    found: dict[int, int] = {}
    for number, (place, tensor) in enumerate(zip(structure.places_of(inputs), tensors_of(inputs), strict=True)):
        if place is not None and tensor.numel():
            found.setdefault(place, number)
    return found


def _share(tensors: Sequence[Tensor]) -> bool:
    """Return whether a tensor is given twice, or a dimension is expanded."""
    expanded = any(
        stride == 0 < size - 1 for each in tensors for size, stride in zip(each.shape, each.stride(), strict=True)
    )
    return expanded or len({id(tensor) for tensor in tensors}) < len(tensors)


def special_places(tensor: Tensor) -> Tensor:
    """Return where a tensor is zero, infinite or NaN."""
    return (tensor == 0) | ~tensor.isfinite()


def kept_symmetry(given: Tensor, leaf: Leaf | None = None) -> Symmetry | None:
    """Return the symmetry of the matrices of an input, which other values of it must have. Inputs with one value
    throughout have none."""
    if leaf is not None and (leaf.uniform if leaf.kind == "floating" else leaf.symmetry is None):
        return None
    return symmetry_of(given)


def _seen_alone(tensor: Tensor, places: int) -> Leaf:
    """Return the facts that one draw shows about a tensor. `places` is one more than the largest integer that may be an
    index."""
    kind = kind_of(tensor)
    if kind == "other" or not tensor.numel():
        leaf = Leaf("other", math.nan, math.nan, uniform=True, special=False)
        varied = tensor.is_complex() and bool((tensor != tensor.reshape(-1)[:1]).any())
        return replace(leaf, symmetry=symmetry_of(tensor) if varied else None)
    values = tensor.detach()
    if kind == "floating":
        return _seen_floating(values)
    low, high = (int(each) for each in (values.to(torch.uint8) if kind == "boolean" else values).aminmax())
    rows = values.reshape(-1, values.shape[-1]) if values.dim() else values.reshape(1, 1)
    leaf = Leaf(kind, low, high, uniform=low == high, special=False)
    if kind == "boolean":
        return replace(leaf, one_true=rows.shape[1] > 1 and bool((rows.sum(1) == 1).all()))
    ascending = rows.shape[1] > 1 and bool((rows[:, 1:] >= rows[:, :-1]).all())
    in_order = rows if ascending else rows.sort(1).values
    distinct = rows.shape[1] > 1 and high < places and bool((in_order[:, 1:] > in_order[:, :-1]).all())
    return replace(leaf, ascending=ascending and low < high, distinct=distinct, total=float(values.sum()))


def _seen_floating(values: Tensor) -> Leaf:
    """Return what one draw shows about a floating-point tensor."""
    low, high = (float(each) for each in values.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        one_value = low == high  # for example, all infinite, which is as little structure as all zeros
        finite = values[values.isfinite()]
        low, high = (float(each) for each in finite.aminmax()) if finite.numel() else (math.nan, math.nan)
        return Leaf("floating", low, high, uniform=one_value, special=bool(finite.numel()))
    has_zeros = low <= 0 <= high and not bool(values.all())
    special = has_zeros and low != high
    leaf = Leaf(
        "floating",
        low,
        high,
        uniform=low == high,
        special=special,
        symmetry=symmetry_of(values) if low < high else None,
    )
    several = values.dim() > 0 and values.shape[-1] >= LEAST_IN_ORDER
    return replace(leaf, ascending=several and low < high and bool((values[..., 1:] >= values[..., :-1]).all()))


def _seen_again(leaf: Leaf, first: Tensor, other: Tensor, places: int) -> Leaf:
    """Return the facts about a tensor that still hold after another draw. `first` is its first draw."""
    found = _seen_alone(other, places)
    symmetry = leaf.symmetry if leaf.symmetry == found.symmetry else None
    if leaf.kind == "other" or (found.kind != leaf.kind and other.numel()):
        return replace(leaf, kind="other", symmetry=symmetry)
    fixed = leaf.fixed and first.dtype == other.dtype and torch.equal(first, other)
    stay = leaf.fixed_places
    if leaf.kind == "floating" and stay and (leaf.special or found.special):
        stay = fixed or _has_same_places(first, other)
    return replace(
        leaf,
        low=min(leaf.low, found.low),
        high=max(leaf.high, found.high),
        uniform=leaf.uniform and found.uniform,
        special=leaf.special or found.special,
        fixed_places=stay,
        fixed=fixed,
        symmetry=symmetry,
        kept=first.data_ptr() == other.data_ptr(),
        ascending=leaf.ascending and found.ascending,
        distinct=leaf.distinct and found.distinct,
        one_true=leaf.one_true and found.one_true,
        total=leaf.total if leaf.total == found.total else None,
    )


def _has_same_places(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have zeros at the same positions, and infinities or NaN, too."""
    return torch.equal(one == 0, other == 0) and torch.equal(one.isfinite(), other.isfinite())


def kind_of(tensor: Tensor) -> Kind:
    """Return whether a tensor is floating, integer, boolean or other, by its dtype."""
    if tensor.dtype == torch.bool:
        return "boolean"
    if tensor.is_floating_point():
        return "floating"
    return "other" if tensor.is_complex() else "integer"
