"""Inputs of other kinds than the problem's own, so that a candidate cannot overfit one distribution. (torch)

Each distribution takes the inputs as given and makes new ones of the same structure, shapes, dtypes and strides.
Only floating-point tensors change, and both parts of complex ones; integers, booleans and Python scalars (see
`discrete.py`) and None stay. What a value means is kept as far as the given values show it:

- a tensor without negative values stays without, one within [0, 1] stays within (variances, probabilities);
- elements that are not finite stay where they are (attention masks), unless no element of any draw is finite;
- a tensor of two or more dimensions keeps its exact zeros (triangular, banded or masked matrices) where they are at
  the same places for every seed (`structure.py`), and a square one that is symmetric stays symmetric;
- rows that are in ascending order in every draw stay so (the edges of bins);
- the same tensor given twice stays the same tensor;
- windows that overlap in memory still do: the memory below them gets other values, as a vector.

Most change all rows alike. `mixed_rows` and those in `ODD` (`odd_rows.py`) do not: what one row, a corner or a few
elements look like says nothing about the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kforge.problems.inputs.structure import Leaf, Structure, symmetric

Draw = Callable[[Tensor, torch.Generator], Tensor]
Replace = Callable[[Tensor, "Leaf | None", torch.Generator], Tensor]


class Distribution(Protocol):
    """Makes new inputs from given ones; `structure` is what several draws of them have in common, where that is
    known."""

    def __call__(
        self, inputs: Sequence[Any], generator: torch.Generator, structure: Structure | None = None
    ) -> list[Any]: ...


OFFSET = 3.0
"""Mean of `shifted`, in standard deviations: sums that cancel in a centred sample no longer do."""
LARGE = 256.0
"""Magnitude of `large`: exp(256) overflows in single precision, and 256 squared in half, which detects an unstable
formula."""
HUGE = 2.0**14
"""Magnitude of `huge`, for problems that scale their inputs down first. A case that makes the reference overflow is
dropped."""
BELOW = 100.0
"""Magnitude of `negative`: exp(-100) is next to nothing in single precision."""
EXPONENTS = 8
"""Exponents of `mixed_scale`: rows differ by up to 2**16."""
SHRINKING = 3
"""Rows and columns of a symmetric matrix are scaled down by up to this power of two."""


# --- values: what is drawn, before the given tensor's domain and structure are imposed -----------------------


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=generator.device, dtype=_working_dtype(like))


def _shifted(like: Tensor, generator: torch.Generator) -> Tensor:
    return _normal(like, generator) + OFFSET


def _negative(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return values far below zero, where exp is nearly zero: this detects a maximum that starts from zero."""
    return -(_normal(like, generator) * LARGE).abs() - BELOW


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return 2 * _unit_uniform(like, generator) - 1


def _tiny(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return values so small beside one that the dtype can hardly distinguish 1 + x from 1."""
    return _normal(like, generator) * torch.finfo(like.dtype).eps


def _large(like: Tensor, generator: torch.Generator) -> Tensor:
    return _normal(like, generator) * LARGE


def _huge(like: Tensor, generator: torch.Generator) -> Tensor:
    return _normal(like, generator) * HUGE


def _edges(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return rows whose first or last element dwarfs the others: this detects a loop that leaves one of them out."""
    values = _normal(like, generator)
    if like.dim() == 0 or like.numel() == 0:
        return values
    rows = (*like.shape[:-1], 1)
    last = torch.randint(2, rows, generator=generator, device=generator.device) * (like.shape[-1] - 1)
    return values.scatter_(-1, last, HUGE)


def _mixed_scale(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return rows (elements of a vector) that each have their own power of two."""
    rows = like.shape if like.dim() < 2 else (*like.shape[:-1], 1)
    powers = torch.randint(-EXPONENTS, EXPONENTS + 1, rows, generator=generator, device=generator.device)
    return torch.ldexp(_normal(like, generator), powers)


def _zeros(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.zeros(like.shape, device=generator.device, dtype=_working_dtype(like))


def _ties(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return multiples of a half, so that many elements are equal."""
    return (2 * _normal(like, generator)).round() / 2


def _one_hot(like: Tensor, generator: torch.Generator) -> Tensor:
    values = _zeros(like, generator)
    if like.dim() == 0:
        return values + 1
    if like.numel() == 0:
        return values
    rows = (*like.shape[:-1], 1)
    hot = torch.randint(like.shape[-1], rows, generator=generator, device=generator.device)
    return values.scatter_(-1, hot, 1.0)


def _binary(like: Tensor, generator: torch.Generator) -> Tensor:
    return (_unit_uniform(like, generator) < 0.5).to(_working_dtype(like))


def _unit_uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, generator=generator, device=generator.device, dtype=_working_dtype(like))


def _working_dtype(like: Tensor) -> torch.dtype:
    return torch.float64 if like.dtype == torch.float64 else torch.float32


# --- structure: what the given tensor shows about itself ------------------------------------------------------


def _in_place_of(
    given: Tensor, draw: Draw, leaf: Leaf | None, generator: torch.Generator, *, free: bool = False
) -> Tensor:
    """Return new values with the given tensor's domain (unless `free`), zeros, symmetry, dtype, device and strides."""
    # An expanded dimension holds one element that is read many times: draw it once, then expand it again.
    kernel = unexpanded(given)
    if given.numel() == 0:
        return given
    values = draw(kernel, generator).to(kernel.device)
    low, high = map(float, kernel.aminmax())
    all_finite = math.isfinite(low) and math.isfinite(high)  # both are NaN where no element is finite
    odd = None if all_finite else ~kernel.isfinite()
    if odd is not None and not bool(odd.all()):
        low, high = map(float, kernel[~odd].aminmax())
    values = values if free else in_domain(values, low, high)
    if in_order(leaf):
        values = values.sort(-1).values
    if symmetric(kernel, leaf):
        values = values.triu() + values.triu(1).mT
    if kernel.dim() >= 2 and (leaf is None or leaf.keeps_places):
        values.masked_fill_(kernel == 0, 0)
    if odd is not None and not _is_never_finite(leaf):
        values = torch.where(odd, kernel.to(values.dtype), values)
    if values.stride() == given.stride() and values.dtype == given.dtype:  # the usual case, and some tensors are large
        return values.requires_grad_(given.requires_grad)
    fresh = torch.empty_strided(kernel.shape, given.stride(), dtype=given.dtype, device=given.device)
    fresh.copy_(values)
    return fresh.expand(given.shape).requires_grad_(given.requires_grad)


def _is_never_finite(leaf: Leaf | None) -> bool:
    """Whether no draw has a finite element: infinities are then no structure, as zeros throughout are none."""
    return leaf is not None and leaf.kind == "floating" and math.isnan(leaf.low) and not leaf.special


def in_domain(values: Tensor, low: float, high: float) -> Tensor:
    """Return values in the domain of the given ones, between `low` and `high`; anywhere where none of the given is
    finite."""
    if not low >= 0 or low == math.inf:
        return values
    values = values.abs()
    # Values over one are replaced by their fraction: tiny stays tiny, ties stay ties, {0, 1} stays {0, 1}.
    return torch.where(values > 1, values.frac(), values) if high <= 1 else values


def in_order(leaf: Leaf | None) -> bool:
    return leaf is not None and leaf.ascending


def overlaps(tensor: Tensor) -> bool:
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def unexpanded(given: Tensor) -> Tensor:
    """Return the same memory with every expanded dimension once."""
    once = [1 if stride == 0 else size for size, stride in zip(given.shape, given.stride(), strict=True)]
    return given.detach().as_strided(once, given.stride())


def in_memory(given: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a tensor whose elements overlap, with the memory below it changed as a vector."""
    span = 1 + sum(stride * (size - 1) for size, stride in zip(given.shape, given.stride(), strict=True))
    fresh = change(given.detach().as_strided((span,), (1,))).detach()
    return fresh.as_strided(given.shape, given.stride()).requires_grad_(given.requires_grad)


def replacing(replace: Replace) -> Distribution:
    """Return a distribution that replaces every floating-point tensor, and one tensor given twice by one tensor."""

    def distribution(
        inputs: Sequence[Any], generator: torch.Generator, structure: Structure | None = None
    ) -> list[Any]:
        fresh: dict[int, Tensor] = {}
        leaves = iter(structure.leaves if structure is not None else ())

        def in_place_of(leaf: Tensor, known: Leaf | None) -> Tensor:
            return replace(leaf, known, generator)

        def through_reals(leaf: Tensor, known: Leaf | None) -> Tensor:
            pairs = torch.view_as_real(leaf.detach().resolve_conj())
            return torch.view_as_complex(replace(pairs, known, generator)).requires_grad_(leaf.requires_grad)

        def replaced(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            known = next(leaves, None)
            if not (leaf.is_floating_point() or leaf.is_complex()):
                return leaf
            if id(leaf) not in fresh:
                change = through_reals if leaf.is_complex() else in_place_of
                if leaf.numel() and overlaps(unexpanded(leaf)):
                    fresh[id(leaf)] = in_memory(leaf, partial(change, known=known))
                else:
                    fresh[id(leaf)] = change(leaf, known)
            return fresh[id(leaf)]

        return list(pytree.tree_map(replaced, list(inputs)))

    return distribution


def drawn(draw: Draw, *, free: bool = False) -> Distribution:
    """Return a distribution with all rows alike; `free`: also below zero and over one, where no given value is."""
    return replacing(lambda given, leaf, generator: _in_place_of(given, draw, leaf, generator, free=free))


def _as_given(inputs: Sequence[Any], generator: torch.Generator, structure: Structure | None = None) -> list[Any]:
    del generator, structure
    return list(inputs)


def mixed_rows(pool: Sequence[Draw], *, free: bool = False) -> Distribution:
    """Return a distribution with rows of four kinds at random positions: as given, and three draws of the pool; `free`
    as in `drawn`. Symmetric matrices get other scales only."""

    def replace(given: Tensor, leaf: Leaf | None, generator: torch.Generator) -> Tensor:
        if given.dim() == 0 and free:  # one number has no rows of other kinds
            number = int(torch.randint(len(pool), (), generator=generator, device=generator.device))
            return _in_place_of(given, pool[number], leaf, generator, free=True)
        if given.dim() == 0 or given.numel() == 0 or overlaps(given) or in_order(leaf):
            return given
        if symmetric(given, leaf):
            return _scaled_on_both_sides(given, generator)
        # rows are all but the last dimension; sometimes whole samples differ instead
        by_sample = given.dim() > 1 and bool(torch.randint(2, (), generator=generator, device=generator.device))
        rows = (given.shape[0], *[1] * (given.dim() - 1)) if by_sample or given.dim() == 1 else (*given.shape[:-1], 1)
        kinds = torch.randint(4, rows, generator=generator, device=generator.device).to(given.device)
        chosen = torch.randperm(len(pool), generator=generator, device=generator.device)[:3].tolist()
        fresh = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=given.device)
        fresh.copy_(given.detach())
        for kind, number in enumerate(chosen):
            values = _in_place_of(given, pool[number], leaf, generator, free=free).detach()
            fresh.copy_(torch.where(kinds == kind, values, fresh))
        return fresh.requires_grad_(given.requires_grad)

    return replacing(replace)


def _scaled_on_both_sides(given: Tensor, generator: torch.Generator) -> Tensor:
    """Return symmetric matrices whose rows, and columns alike, have scales of their own.

    A positive definite matrix stays so, which a factorization needs: it has no result for most other symmetric ones.
    """
    rows = (*given.shape[:-1], 1)
    powers = torch.randint(-SHRINKING, 1, rows, generator=generator, device=generator.device)
    scales = torch.ldexp(torch.ones_like(powers, dtype=torch.float32), powers).to(given.device, given.dtype)
    fresh = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=given.device)
    return fresh.copy_(given.detach() * scales * scales.mT).requires_grad_(given.requires_grad)


WILD = (_shifted, _negative, _large, _edges, _mixed_scale, _zeros, _ties, _one_hot, _tiny)
"""Distributions of single odd rows."""
MILD = (_shifted, _uniform, _zeros, _ties, _one_hot, _tiny)
"""Distributions of odd rows, for cases in which WILD makes the reference overflow."""
SIGNED, SIGNED_MILD = (_negative, _large, _mixed_scale), (_normal, _shifted, _uniform)
"""Pools for tensors that leave their given interval (`other_ranges.py`)."""

DISTRIBUTIONS: Mapping[str, Distribution] = MappingProxyType(
    {
        "as_given": _as_given,
        "shifted": drawn(_shifted),
        "negative": drawn(_negative),
        "uniform": drawn(_uniform),
        "tiny": drawn(_tiny),
        "large": drawn(_large),
        "huge": drawn(_huge),
        "edges": drawn(_edges),
        "mixed_scale": drawn(_mixed_scale),
        "zeros": drawn(_zeros),
        "ties": drawn(_ties),
        "one_hot": drawn(_one_hot),
        "binary": drawn(_binary),
        "mixed_rows": mixed_rows(WILD),
    }
)
MILDER_ROWS = mixed_rows(MILD)
"""Replaces `mixed_rows` where that makes the reference overflow."""
