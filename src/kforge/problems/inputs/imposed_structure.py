"""Removes structure from inputs that a module may impose itself: symmetry, and zeros at fixed positions. (torch)

A matrix that is given symmetric, skew-symmetric or Hermitian stays so in all other cases, and zeros at the same
positions in every draw stay there: a factorization needs symmetry, and a triangular product needs zeros. But a module
that takes the symmetric part of a matrix, or its lower triangle, accepts any matrix. A program that leaves out that
step is wrong for its user. So in one case an input loses its structure. If the reference gives another result then, it
relies on the structure, and the case is dropped.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from kforge.problems.inputs.distributions import replacing
from kforge.problems.inputs.other_ranges import only
from kforge.problems.inputs.structure import first_of_places, special_places, tensors_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from kforge.problems.inputs.distributions import Distribution
    from kforge.problems.inputs.structure import Leaf, Structure
    from kforge.problems.inputs.symmetry import Symmetry

ASYMMETRIC, FILLED = "asymmetric", "filled_zeros"
"""Beginnings of the names of the cases that remove a structure: symmetry, or zeros at fixed positions."""
MOST_IMPOSED = 3
"""Most cases for one kind of structure. In each, one input loses it; in the last, all remaining inputs."""
LARGEST_PART = 0.5
"""Largest share by which an element of a symmetric matrix grows, while its mirror element shrinks by the same share."""


def is_imposed(name: str) -> bool:
    """Return whether the case of this name removes structure from inputs."""
    return name.partition(" ")[0] in (ASYMMETRIC, FILLED)


def structured(kind: str, structure: Structure, inputs: Sequence[Any]) -> list[int]:
    """Return the positions of the real or complex tensors that have a structure of this kind."""
    tensors, first = tensors_of(inputs), first_of_places(structure, inputs)
    both = [(place, structure.leaves[place], tensors[first[place]]) for place in sorted(first)]
    return [
        place
        for place, leaf, tensor in both
        if tensor.dim() >= 2 and (leaf.symmetric if kind == ASYMMETRIC else _has_fixed_zeros(leaf, tensor))
    ]


def _has_fixed_zeros(leaf: Leaf, tensor: Tensor) -> bool:
    return leaf.kind == "floating" and leaf.keeps_places and bool((tensor == 0).any())


def names(structure: Structure, inputs: Sequence[Any]) -> list[str]:
    """Return the names of the cases that remove structure (symmetry, fixed zeros) from these inputs."""
    found = []
    for kind in (ASYMMETRIC, FILLED):
        places = structured(kind, structure, inputs)
        alone, together = places[: MOST_IMPOSED - 1], places[MOST_IMPOSED - 1 :]
        found += [f"{kind} #{','.join(map(str, each))}" for each in (*([place] for place in alone), together) if each]
    return found


def places_of(name: str) -> list[int]:
    """Return the positions of the inputs that lose their structure in the case of this name."""
    return [int(place) for place in name.rpartition("#")[2].split(",")]


def variation(name: str) -> Distribution:
    """Return the distribution that removes the structure of these inputs; other inputs stay as given."""
    if name.startswith(ASYMMETRIC):
        return partial(only, places_of(name), replacing(lambda given, *_: given, _asymmetric))
    return partial(only, places_of(name), replacing(_without_zeros, _without_zeros_in_pairs))


def _asymmetric(given: Tensor, leaf: Leaf | None, generator: torch.Generator, symmetry: Symmetry) -> Tensor:
    """Return matrices without the symmetry of the given ones, but whose part of that symmetry is the given one.

    For symmetric matrices that is (A + A^T) / 2, for Hermitian ones (A + A^H) / 2. Zeros and signs stay.
    """
    del leaf, symmetry
    shares = LARGEST_PART * (2 * torch.rand(given.shape, generator=generator, device=generator.device) - 1)
    upper = shares.to(given.device).triu(1)
    return _in_form_of(given, given.detach() * (1 + upper - upper.mT))


def _without_zeros(given: Tensor, leaf: Leaf | None, generator: torch.Generator) -> Tensor:
    """Return the tensor with zeros replaced by random other elements of it."""
    del leaf
    others = given.detach()[~special_places(given)]
    if given.dim() < 2 or not others.numel():
        return given
    chosen = torch.randint(others.numel(), given.shape, generator=generator, device=generator.device)
    return _in_form_of(given, torch.where(given == 0, others[chosen.to(given.device)], given.detach()))


def _without_zeros_in_pairs(given: Tensor, leaf: Leaf | None, generator: torch.Generator, symmetry: Symmetry) -> Tensor:
    """Return matrices with zeros replaced, the same ones above and below the diagonal. Zeros of a diagonal are
    replaced, too."""
    values = _without_zeros(given, leaf, generator)
    return given if values is given else _in_form_of(given, symmetry.with_mirrored_triangle(values.detach()))


def _in_form_of(given: Tensor, values: Tensor) -> Tensor:
    """Return these values with the dtype and strides of the given tensor. An expanded tensor is returned unchanged."""
    if 0 in given.stride():
        return given
    fresh = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=given.device)
    return fresh.copy_(values).requires_grad_(given.requires_grad)
