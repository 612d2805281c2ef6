"""Other Python numbers and flags than those given, which are arguments of each call. (torch)

Integers stay, since most of them are sizes, and so do strings, since nothing says which others there are. A number that
is multiplied by up to two does not change where it is zero or infinite, and hardly where it is next to nothing: what it
scales, or bounds, could be left out. So there is a case where such numbers are ordinary ones (`ordinary_scalars`).
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.problems.inputs.structure import Scalar

if TYPE_CHECKING:
    from collections.abc import Collection

    from kforge.problems.inputs.discrete import Variation
    from kforge.problems.inputs.structure import Structure

OTHER, ORDINARY = "other_scalars", "ordinary_scalars"
LEAST, LARGEST = 1e-4, 1e4
"""Numbers whose magnitude is beyond these are next to nothing, or no limit for most tensors."""
LOW, HIGH = 0.25, 0.95
"""Ordinary numbers are between these: also where they are probabilities or decays."""
_Change = Callable[[Any, float, float], Any]


def scalars_in(inputs: Sequence[Any]) -> list[Any]:
    """The Python numbers, flags and strings of nested inputs, in order."""
    return [leaf for leaf in pytree.tree_leaves(list(inputs)) if isinstance(leaf, Scalar)]


def extraordinary(inputs: Sequence[Any]) -> list[int]:
    """Places among the scalars of the numbers that are zero, not finite, next to nothing or very large."""
    return [place for place, value in enumerate(scalars_in(inputs)) if _is_extraordinary(value)]


def changed_scalars(given: Sequence[Any], other: Sequence[Any]) -> frozenset[int]:
    """Places among the scalars of those that differ."""
    both = zip(scalars_in(given), scalars_in(other), strict=True)
    return frozenset(place for place, (one, another) in enumerate(both) if repr(one) != repr(another))


def _is_extraordinary(value: Any) -> bool:
    return isinstance(value, float | complex) and not LEAST <= abs(value) <= LARGEST


def _changing(change: _Change, places: Collection[int] | None = None) -> Variation:
    """Change the scalars at these places, or all; `change` is given the scalar and two random numbers below one."""

    def variation(inputs: Sequence[Any], generator: torch.Generator, structure: Structure) -> list[Any]:
        del structure
        leaves, form = pytree.tree_flatten(list(inputs))
        scalars = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Scalar)]
        draws = torch.rand(len(scalars), 2, generator=generator, device=generator.device, dtype=torch.float64).tolist()
        for place, (index, drawn) in enumerate(zip(scalars, draws, strict=True)):
            if places is None or place in places:
                leaves[index] = change(leaves[index], *drawn)
        return list(pytree.tree_unflatten(leaves, form))

    return variation


def _turned(value: Any, drawn: float, turn: float) -> Any:
    """A flag turned."""
    del drawn, turn
    return not value if isinstance(value, bool) else value


def _multiplied(value: Any, drawn: float, turn: float) -> Any:
    """A number multiplied by up to two; a complex one is of another direction, too."""
    factor = 0.5 + 1.5 * drawn
    if isinstance(value, complex):
        return value * cmath.rect(factor, math.tau * turn)
    return value * factor if isinstance(value, float) else value


def _turned_or_multiplied(value: Any, drawn: float, turn: float) -> Any:
    return _turned(value, drawn, turn) if isinstance(value, bool) else _multiplied(value, drawn, turn)


def _ordinary(value: Any, drawn: float, turn: float) -> Any:
    """A number of the same sign, where the given one is not ordinary."""
    if not _is_extraordinary(value):
        return value
    size = LOW + (HIGH - LOW) * drawn
    return cmath.rect(size, math.tau * turn) if isinstance(value, complex) else math.copysign(size, value)


SCALARS: Mapping[str, tuple[Variation, ...]] = MappingProxyType(
    {
        OTHER: (_changing(_turned_or_multiplied), _changing(_multiplied), _changing(_turned)),
        ORDINARY: (_changing(_ordinary),),
    }
)
"""By name: a variation, and milder ones to try where the reference does not take inputs of that one."""


def ordinary_singly(inputs: Sequence[Any]) -> dict[int, list[Variation]]:
    """One number each that is ordinary, by its place; nothing where there is only one."""
    places = extraordinary(inputs)
    return {place: [_changing(_ordinary, [place])] for place in places} if len(places) > 1 else {}
