"""Draws inputs outside the range of a problem's own values: negative, above one, or of very different magnitudes.
(torch)

In the other distributions a tensor without negative values gets none, and a tensor within [0, 1] stays there, because
it may hold variances or probabilities. But most such tensors come from `torch.rand` and could have any values. A
program that is right only for values up to one is wrong for its user. So each such tensor leaves its interval in a case
(`outside`). All tensors also get other magnitudes (`enormous`, `minute`), first together and then one by one. A case is
dropped if the reference has no finite result, and a program is judged for gross errors only
(`evaluation/correctness/beyond_given_values.py`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.problems.inputs.distributions import SIGNED, SIGNED_MILD, drawn, in_memory, mixed_rows
from kforge.problems.inputs.scalars import NEGATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from kforge.problems.inputs.distributions import Distribution, Draw
    from kforge.problems.inputs.structure import Leaf, Structure

OUTSIDE, ENORMOUS, MINUTE = "outside", "enormous", "minute"
"""Kinds of cases with inputs beyond the given values. The names of cases begin with their kind."""
LARGE_WEIGHTS = "large_weights"
"""Name of the case with inputs as given, and a row of a parameter far larger than drawn
(`evaluation/reference/weights.py`)."""
MOST_OUTSIDE = 3
"""Most cases with a tensor outside its interval. If there are more tensors, several leave it together."""
OVER_ONE = f"{OUTSIDE} #{MOST_OUTSIDE}"
"""Name of the case in which tensors with one value throughout, such as a time step, are over one. Other tensors have
rows of both kinds in one case: over one and below zero."""
MOST_SCALED = 3
"""Most cases in which one tensor is enormous, or very small, and the others are as given. If there are more tensors,
several are changed together."""
EXPONENTS = {ENORMOUS: (24, 16), MINUTE: (-50, -30)}
"""Powers of two of the magnitudes: the first choice, and a milder one. For numbers of about 2^24 (1.7e7) the product of
two sums of squares is still finite in float32. With larger numbers a cosine similarity with one square root would
overflow, and avoiding that is more than ordinary care. Very small numbers are about 2^-50 (1e-15)."""


def is_beyond(name: str) -> bool:
    """Return whether the case of this name has inputs or weights beyond the given values."""
    return kind_of(name) in (OUTSIDE, ENORMOUS, MINUTE, LARGE_WEIGHTS, NEGATED)


def kind_of(name: str) -> str:
    """Return the name of a case without the number of the tensors that vary."""
    return name.partition(" ")[0]


def names(structure: Structure) -> list[str]:
    """Return the names of the cases with values beyond the given ones, for inputs of this structure."""
    if not structure.has("floating"):
        return []
    outside, scaled = min(MOST_OUTSIDE, len(_confined(structure))), min(MOST_SCALED, len(_floating(structure)))
    return [
        *(f"{OUTSIDE} #{number}" for number in range(outside)),
        *([OVER_ONE] if _single(structure) else []),
        *(ENORMOUS, MINUTE),
        *(f"{kind} #{number}" for kind in (ENORMOUS, MINUTE) for number in range(scaled) if scaled > 1),
    ]


def variations(name: str, structure: Structure) -> list[Distribution]:
    """Return the distributions for the case of that name: the first choice, then milder ones."""
    chosen = _chosen(name, structure)
    if name == OVER_ONE:
        return [partial(only, chosen, _over_one(mixed_rows(pool, free=True))) for pool in (SIGNED[1:2], SIGNED_MILD)]
    return _outside(chosen, structure) if kind_of(name) == OUTSIDE else _of_magnitude(kind_of(name), chosen, structure)


def singly(name: str, structure: Structure) -> dict[int, list[Distribution]]:
    """Return, by position, the distributions that change one tensor alone, for each tensor that the case changes
    together with others.

    They are needed because one tensor that must not be negative makes the case fail for all of its tensors. Empty if
    the case changes one tensor only, or all, because there are separate cases for each of them.
    """
    chosen = _chosen(name, structure)
    if len(chosen) < 2 or name in (ENORMOUS, MINUTE, OVER_ONE):
        return {}
    kind = kind_of(name)
    return {
        place: _outside([place], structure) if kind == OUTSIDE else _of_magnitude(kind, [place], structure)
        for place in chosen
    }


def _chosen(name: str, structure: Structure) -> list[int]:
    """Return the positions of the tensors that the case of that name changes."""
    kind, _, number = name.partition(" #")
    if not number:
        return _floating(structure)
    if name == OVER_ONE:
        return _single(structure)
    return (
        _confined(structure)[int(number) :: MOST_OUTSIDE]
        if kind == OUTSIDE
        else _floating(structure)[int(number) :: MOST_SCALED]
    )


def _of_magnitude(kind: str, chosen: Sequence[int], structure: Structure) -> list[Distribution]:
    """Return the distributions that give these tensors an enormous or a very small magnitude."""
    draws = [_scaled(exponent) for exponent in EXPONENTS[kind]]
    free = [drawn(draws[0], free=True)] if set(chosen) & set(_confined(structure)) else []
    every = [*free, *(drawn(draw) for draw in draws)]
    # `only` cannot select complex tensors, so they change only if all tensors do
    return every if len(chosen) == len(_floating(structure)) else [partial(only, chosen, each) for each in every]


def _outside(chosen: Sequence[int], structure: Structure) -> list[Distribution]:
    """Return the distributions that give these tensors negative values, or values above one."""
    pools = [mixed_rows(SIGNED, free=True), mixed_rows(SIGNED_MILD, free=True)]
    # values over one, if the reference has no result below zero; for a single tensor, so that others still go below
    if len(chosen) == 1 and structure.leaves[chosen[0]].high <= 1:
        pools += [_over_one(each) for each in pools]
    return [partial(only, chosen, each) for each in pools]


def _floating(structure: Structure) -> list[int]:
    """Return the positions of the floating-point tensors."""
    return [place for place, leaf in enumerate(structure.leaves) if leaf.kind == "floating"]


def _confined(structure: Structure) -> list[int]:
    """Return the positions of the tensors that have no negative values."""
    return [place for place, leaf in enumerate(structure.leaves) if leaf.kind == "floating" and leaf.low >= 0]


def _single(structure: Structure) -> list[int]:
    """Return the positions of the tensors whose values are all equal and between zero and one."""
    confined = _confined(structure)
    return [place for place in confined if structure.leaves[place].uniform and 0 < structure.leaves[place].high <= 1]


def _scaled(exponent: int) -> Draw:
    """Return a draw of normal numbers times 2**exponent; float16 tensors stay as given."""

    def draw(like: Tensor, generator: torch.Generator) -> Tensor:
        wide = torch.finfo(like.dtype).max > torch.finfo(torch.float16).max  # float16 has no such numbers
        values = torch.randn(like.shape, generator=generator, device=generator.device, dtype=torch.float64)
        return (values * 2.0**exponent).to(like.dtype) if wide else like.to(generator.device, copy=True)

    return draw


def _over_one(distribution: Distribution) -> Distribution:
    """Return the same distribution with the absolute values of its numbers."""

    def positive(inputs: Sequence[Any], generator: torch.Generator, structure: Structure | None = None) -> list[Any]:
        return list(pytree.tree_map(_unsigned, distribution(inputs, generator, structure)))

    return positive


def _unsigned(leaf: Any) -> Any:
    """Return a tensor's absolute values with the same strides. Expanded rows are computed once."""
    return in_memory(leaf, torch.abs) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def only(
    chosen: Sequence[int],
    distribution: Distribution,
    inputs: Sequence[Any],
    generator: torch.Generator,
    structure: Structure,
) -> list[Any]:
    """Return the inputs with these tensors changed by the distribution, and all others as given."""
    leaves, form = pytree.tree_flatten(list(inputs))
    tensors = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    of_places = structure.places_of(inputs)
    both = [(each, place) for one in chosen for each, place in zip(of_places, tensors, strict=True) if each == one]
    places = [place for _, place in both]
    known: list[Leaf] = [structure.leaves[each] for each, _ in both if each is not None]
    fresh = distribution([leaves[place] for place in places], generator, type(structure)(known))
    replaced = {id(leaves[place]): tensor for place, tensor in zip(places, fresh, strict=True)}
    return list(pytree.tree_unflatten([replaced.get(id(leaf), leaf) for leaf in leaves], form))
