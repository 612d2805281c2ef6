"""Makes other Python numbers and flags than those given, which are arguments of each call. (torch)

Integers stay, since most of them are sizes, and so do strings, since no other values are known. Multiplying by up to
two does not change a number that is zero or infinite, and hardly one that is small or large: a program could leave out
what it scales or bounds. A product of two numbers below a tenth (a rate and a decay) hides what it scales, too. So
there is a case where all these numbers are ordinary ones (`ordinary_scalars`).

None of this changes a sign, and a program may take a gain for positive. So each number is negated in a case of its own
(`negated_scalars`): the signs of two that are multiplied would hide each other. In the same way each of several flags
is turned alone (`turned_flags`).
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
NEGATED, TURNED = "negated_scalars", "turned_flags"
MOST_ALONE = 4
"""Most cases in which one number is negated, or one flag is turned; where there are more, several change together."""
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


def _negated(value: Any, drawn: float, turn: float) -> Any:
    """Return a finite number of the other sign, and an ordinary one where the given one is not; zero becomes
    negative."""
    if not _can_be_negated(value):
        return value
    ordinary = _ordinary(value, drawn, turn) if _is_extraordinary(value) else _multiplied(value, drawn, turn)
    return -ordinary


def _negated_as_given(value: Any, drawn: float, turn: float) -> Any:
    """Return a finite number of the other sign and of about the same size; zero stays."""
    return -_multiplied(value, drawn, turn) if _can_be_negated(value) and value != 0 else value


def _can_be_negated(value: Any) -> bool:
    """Return whether it is a finite number. An infinite limit bounds nothing; with the other sign it would."""
    return isinstance(value, float) and math.isfinite(value)


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


def is_alone(name: str) -> bool:
    """Whether the case of this name changes one number or one flag only, or a few of many."""
    return name.partition(" ")[0] in (NEGATED, TURNED)


def alone(inputs: Sequence[Any]) -> list[str]:
    """Return the names of the cases in which one number is negated, or one of several flags is turned."""
    return [
        f"{kind} #{number}"
        for kind in (NEGATED, TURNED)
        for number in range(min(MOST_ALONE, len(_changed_alone(kind, inputs))))
    ]


def signed(inputs: Sequence[Any]) -> frozenset[int]:
    """Return the positions among the scalars of the numbers that have a sign."""
    return frozenset(place for place, value in enumerate(scalars_in(inputs)) if isinstance(value, float))


def variations_alone(name: str, inputs: Sequence[Any]) -> list[Variation]:
    """Return the case of that name, and milder ones to try where the reference does not accept it."""
    return _of_places(name, _chosen(name, inputs))


def singly_alone(name: str, inputs: Sequence[Any]) -> dict[int, list[Variation]]:
    """Return the variations of each scalar that the case of that name changes together with others, by its position."""
    chosen = _chosen(name, inputs)
    return {place: _of_places(name, [place]) for place in chosen} if len(chosen) > 1 else {}


def _changed_alone(kind: str, inputs: Sequence[Any]) -> list[int]:
    if kind == NEGATED:
        return [place for place, value in enumerate(scalars_in(inputs)) if _can_be_negated(value)]
    flags = [place for place, value in enumerate(scalars_in(inputs)) if isinstance(value, bool)]
    return flags if len(flags) > 1 else []  # a single flag is turned in another case


def _chosen(name: str, inputs: Sequence[Any]) -> list[int]:
    kind, _, number = name.partition(" #")
    return _changed_alone(kind, inputs)[int(number) :: MOST_ALONE]


def _of_places(name: str, places: Collection[int]) -> list[Variation]:
    changes = [_negated, _negated_as_given] if name.startswith(NEGATED) else [_turned]
    return [_changing(change, places) for change in changes]
