"""Makes other Python numbers and flags than those given, which are arguments of each call. (torch)

Integers stay, since most of them are sizes, and so do strings, since no other values are known. Multiplying by up to
two does not change a number that is zero or infinite, and hardly one that is small or large: a program could leave out
what it scales or bounds. A product of two numbers below a tenth (a rate and a decay) hides what it scales, too. So
there is a case where all these numbers are ordinary ones (`ordinary_scalars`).
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
LEAST, LARGEST = 0.1, 10.0
"""Numbers whose magnitude is outside these may hide what they scale, also two or three of them together, or be no limit
for most tensors."""
LOW, HIGH = 0.25, 0.95
"""Ordinary numbers lie between these, also where they are probabilities or decays."""
_Change = Callable[[Any, float, float], Any]


def scalars_in(inputs: Sequence[Any]) -> list[Any]:
    """Return the Python numbers, flags and strings of nested inputs, in order."""
    return [leaf for leaf in pytree.tree_leaves(list(inputs)) if isinstance(leaf, Scalar)]


def extraordinary(inputs: Sequence[Any]) -> list[int]:
    """Return the positions among the scalars of the numbers that are zero, not finite, small or large."""
    return [place for place, value in enumerate(scalars_in(inputs)) if _is_extraordinary(value)]


def changed_scalars(given: Sequence[Any], other: Sequence[Any]) -> frozenset[int]:
    """Return the positions of the scalars that differ."""
    both = zip(scalars_in(given), scalars_in(other), strict=True)
    return frozenset(place for place, (one, another) in enumerate(both) if repr(one) != repr(another))


def _is_extraordinary(value: Any) -> bool:
    return isinstance(value, float | complex) and not LEAST <= abs(value) <= LARGEST


def _changing(change: _Change, places: Collection[int] | None = None) -> Variation:
    """Change the scalars at these positions, or all; `change` gets the scalar and two random numbers below one."""

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
    """Return a flag inverted."""
    del drawn, turn
    return not value if isinstance(value, bool) else value


def _multiplied(value: Any, drawn: float, turn: float) -> Any:
    """Return a number multiplied by up to two; a complex one also gets another direction."""
    factor = 0.5 + 1.5 * drawn
    if isinstance(value, complex):
        return value * cmath.rect(factor, math.tau * turn)
    return value * factor if isinstance(value, float) else value


def _turned_or_multiplied(value: Any, drawn: float, turn: float) -> Any:
    return _turned(value, drawn, turn) if isinstance(value, bool) else _multiplied(value, drawn, turn)


def _ordinary(value: Any, drawn: float, turn: float) -> Any:
    """Return a number of the same sign, where the given one is not ordinary."""
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
"""Each case's variation, and milder ones to try where the reference does not accept it, by name."""


def ordinary_singly(inputs: Sequence[Any]) -> dict[int, list[Variation]]:
    """Return variations that make one number each ordinary, by its position; nothing where there is only one."""
    places = extraordinary(inputs)
    return {place: [_changing(_ordinary, [place])] for place in places} if len(places) > 1 else {}
