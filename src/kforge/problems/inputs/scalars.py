"""Changes Python numbers and flags among the arguments of a call. (torch)

Integers stay, because most are sizes. Strings stay, because no other values are known. Usually a number is multiplied
by a factor from 0.5 to 2. That does not change a number that is zero or infinite, and has little effect on a very small
or very large one: a program could leave out what such a number scales or bounds. So in one case all such numbers become
ordinary (`ordinary_scalars`).

None of this changes a sign, and a program may assume that a gain is positive. So each number is negated in its own case
(`negated_scalars`), because the signs of two factors would cancel. In the same way each of several flags is inverted
alone (`turned_flags`).
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
"""Names of the cases that change all numbers and flags, or make all unusual numbers ordinary."""
NEGATED, TURNED = "negated_scalars", "turned_flags"
"""Beginnings of the names of the cases that negate one number, or invert one flag."""
MOST_ALONE = 4
"""Most cases in which one number is negated, or one flag is inverted. If there are more, several change together."""
LEAST, LARGEST = 0.1, 10.0
"""Numbers with a magnitude below LEAST or above LARGEST are replaced by ordinary ones in one case: a very small factor
hides what it scales, and a very large bound limits nothing."""
LOW, HIGH = 0.25, 0.95
"""Numbers that are zero, infinite, very small or very large are replaced by numbers between LOW and HIGH, which may
also be probabilities or decays."""
_Change = Callable[[Any, float, float], Any]
"""A function that returns another value for a scalar, given two random numbers between 0 and 1."""


def scalars_in(inputs: Sequence[Any]) -> list[Any]:
    """Return the Python numbers, flags and strings of nested inputs, in order."""
    return [leaf for leaf in pytree.tree_leaves(list(inputs)) if isinstance(leaf, Scalar)]


def extraordinary(inputs: Sequence[Any]) -> list[int]:
    """Return the positions, among the scalars, of numbers that are zero, infinite, very small or very large."""
    return [place for place, value in enumerate(scalars_in(inputs)) if _is_extraordinary(value)]


def changed_scalars(given: Sequence[Any], other: Sequence[Any]) -> frozenset[int]:
    """Return the positions of the Python numbers, flags and strings that differ between two sets of inputs."""
    both = zip(scalars_in(given), scalars_in(other), strict=True)
    return frozenset(place for place, (one, another) in enumerate(both) if repr(one) != repr(another))


def _is_extraordinary(value: Any) -> bool:
    return isinstance(value, float | complex) and not LEAST <= abs(value) <= LARGEST


def _changing(change: _Change, places: Collection[int] | None = None) -> Variation:
    """Return a variation that applies `change` to the scalars at these positions, or to all."""

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
    """Return a flag inverted; other values unchanged."""
    del drawn, turn
    return not value if isinstance(value, bool) else value


def _multiplied(value: Any, drawn: float, turn: float) -> Any:
    """Return a number multiplied by 0.5 to 2; a complex one also gets another direction. Other values stay."""
    factor = 0.5 + 1.5 * drawn
    if isinstance(value, complex):
        return value * cmath.rect(factor, math.tau * turn)
    return value * factor if isinstance(value, float) else value


def _turned_or_multiplied(value: Any, drawn: float, turn: float) -> Any:
    return _turned(value, drawn, turn) if isinstance(value, bool) else _multiplied(value, drawn, turn)


def _ordinary(value: Any, drawn: float, turn: float) -> Any:
    """Return an ordinary number of the same sign, if the given one is not ordinary."""
    if not _is_extraordinary(value):
        return value
    size = LOW + (HIGH - LOW) * drawn
    return cmath.rect(size, math.tau * turn) if isinstance(value, complex) else math.copysign(size, value)


def _negated(value: Any, drawn: float, turn: float) -> Any:
    """Return a finite number with the other sign, made ordinary if it is not. Zero becomes negative."""
    if not _can_be_negated(value):
        return value
    ordinary = _ordinary(value, drawn, turn) if _is_extraordinary(value) else _multiplied(value, drawn, turn)
    return -ordinary


def _negated_as_given(value: Any, drawn: float, turn: float) -> Any:
    """Return a finite number with the other sign and about the same size. Zero stays zero."""
    return -_multiplied(value, drawn, turn) if _can_be_negated(value) and value != 0 else value


def _can_be_negated(value: Any) -> bool:
    """Return whether a value is a finite float. An infinite bound limits nothing, but its negative limits
    everything."""
    return isinstance(value, float) and math.isfinite(value)


SCALARS: Mapping[str, tuple[Variation, ...]] = MappingProxyType(
    {
        OTHER: (_changing(_turned_or_multiplied), _changing(_multiplied), _changing(_turned)),
        ORDINARY: (_changing(_ordinary),),
    }
)
"""For each case, its variation, followed by milder ones that are tried if the reference does not accept it."""


def ordinary_singly(inputs: Sequence[Any]) -> dict[int, list[Variation]]:
    """Return for each number that is not ordinary a variation that changes it alone; empty if there is only one."""
    places = extraordinary(inputs)
    return {place: [_changing(_ordinary, [place])] for place in places} if len(places) > 1 else {}


def is_alone(name: str) -> bool:
    """Return whether the case of this name negates numbers or inverts flags."""
    return name.partition(" ")[0] in (NEGATED, TURNED)


def alone(inputs: Sequence[Any]) -> list[str]:
    """Return the names of the cases in which one number is negated, or one of several flags is inverted."""
    return [
        f"{kind} #{number}"
        for kind in (NEGATED, TURNED)
        for number in range(min(MOST_ALONE, len(_changed_alone(kind, inputs))))
    ]


def signed(inputs: Sequence[Any]) -> frozenset[int]:
    """Return the positions, among the scalars, of the floating-point numbers."""
    return frozenset(place for place, value in enumerate(scalars_in(inputs)) if isinstance(value, float))


def variations_alone(name: str, inputs: Sequence[Any]) -> list[Variation]:
    """Return the variation for the case of that name, then milder ones."""
    return _of_places(name, _chosen(name, inputs))


def singly_alone(name: str, inputs: Sequence[Any]) -> dict[int, list[Variation]]:
    """Return, by position, the variations that change one scalar alone, for each scalar that the case changes together
    with others."""
    chosen = _chosen(name, inputs)
    return {place: _of_places(name, [place]) for place in chosen} if len(chosen) > 1 else {}


def _changed_alone(kind: str, inputs: Sequence[Any]) -> list[int]:
    """Return the positions of the scalars that cases of this kind change: numbers to negate, or flags to invert."""
    if kind == NEGATED:
        return [place for place, value in enumerate(scalars_in(inputs)) if _can_be_negated(value)]
    flags = [place for place, value in enumerate(scalars_in(inputs)) if isinstance(value, bool)]
    return flags if len(flags) > 1 else []  # the case `other_scalars` inverts a single flag


def _chosen(name: str, inputs: Sequence[Any]) -> list[int]:
    """Return the positions of the scalars that the case of that name changes."""
    kind, _, number = name.partition(" #")
    return _changed_alone(kind, inputs)[int(number) :: MOST_ALONE]


def _of_places(name: str, places: Collection[int]) -> list[Variation]:
    changes = [_negated, _negated_as_given] if name.startswith(NEGATED) else [_turned]
    return [_changing(change, places) for change in changes]
