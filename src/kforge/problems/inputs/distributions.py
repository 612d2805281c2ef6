"""Input distributions other than the problem's own, so that a candidate cannot be fitted to one distribution. (torch)

Each distribution takes the given inputs and returns new ones of the same structure, shapes, dtypes and strides. Only
floating-point tensors change, and both parts of complex ones. Integers, booleans and Python values stay (`discrete.py`
varies them). The meaning of values is kept as far as the given inputs show it:

- A tensor without negative values gets none, and one within [0, 1] stays there (variances, probabilities).
- Infinite and NaN elements stay at their positions (attention masks), unless no draw has a finite element.
- A tensor of two or more dimensions keeps its zeros if they are at the same positions for every seed
  (`structure.py`): triangular, banded or masked matrices.
- A symmetric, skew-symmetric, Hermitian or skew-Hermitian matrix stays so (`symmetry.py`).
- Rows that are ascending in every draw stay ascending (the edges of bins).
- A tensor that is given twice stays one tensor.
- Windows that overlap in memory still overlap: the memory below them gets other values.

Most distributions change all rows in the same way. `mixed_rows` and those in `odd_rows.py` do not, so that a sample of
rows or elements says nothing about the others.
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

from kforge.problems.inputs.structure import Leaf, Structure, kept_symmetry
from kforge.problems.inputs.symmetry import Symmetry

Draw = Callable[[Tensor, torch.Generator], Tensor]
"""A function that returns random values in the shape of a given tensor."""
Replace = Callable[[Tensor, "Leaf | None", torch.Generator], Tensor]
"""A function that returns a new tensor in place of a given one. Its second argument holds the facts that are known
about the tensor."""
ReplaceMatrices = Callable[[Tensor, "Leaf | None", torch.Generator, Symmetry], Tensor]
"""A function that returns new matrices in place of given ones that have a symmetry. They may be complex."""


class Distribution(Protocol):
    """Makes new inputs from given ones. `structure` holds what several draws of the inputs have in common; None if that
    is unknown."""

    def __call__(
        self, inputs: Sequence[Any], generator: torch.Generator, structure: Structure | None = None
    ) -> list[Any]: ...


OFFSET = 3.0
"""Mean of `shifted`, in standard deviations: sums that cancel in a centred sample no longer do."""
LARGE = 256.0
"""Magnitude of `large`. exp(256) overflows in single precision, and 256 squared in half precision, which detects
unstable formulas."""
HUGE = 2.0**14
"""Magnitude of `huge`, for problems that scale their inputs down first. The case is dropped if the reference
overflows."""
BELOW = 100.0
"""All values of the distribution `negative` are at most minus this: exp(-100) is nearly zero in single precision. Those
of `positive` are at least this."""
LEAST_POSITIVE = 2.0**-10
"""Least value of the milder form of `positive`, which in bfloat16 is also more than zero."""
EXPONENTS = 8
"""Largest power of two by which rows are scaled in the distribution `mixed_scale`, up or down."""
SHRINKING = 3
"""Rows and columns of a symmetric matrix are scaled down by up to this power of two."""


# --- values: what is drawn, before the given tensor's domain and structure are imposed -----------------------


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=generator.device, dtype=_working_dtype(like))


def _shifted(like: Tensor, generator: torch.Generator) -> Tensor:
    return _normal(like, generator) + OFFSET


def _negative(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return values far below zero, where exp is nearly zero. This detects a maximum that starts from zero."""
    return -(_normal(like, generator) * LARGE).abs() - BELOW


def _positive(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return values far above zero: no long row of a centred sample is positive throughout."""
    return (_normal(like, generator) * LARGE).abs() + BELOW


def _mildly_positive(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return ordinary values above zero."""
    return _normal(like, generator).abs() + LEAST_POSITIVE


def _rising(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return rows whose elements strictly rise: a grid from zero to one, with each element moved by up to half a step.

    Each row has its own length and its own beginning, as otherwise a column would hardly vary. Numbers without a
    negative one stay between zero and one.
    """
    if like.dim() == 0 or like.numel() == 0:
        return _unit_uniform(like, generator)
    size, rows = like.shape[-1], like[..., :1]
    steps = torch.arange(size, device=generator.device, dtype=_working_dtype(like))
    grid = (steps + _unit_uniform(like, generator) / 2) / size
    length, start = (_unit_uniform(rows, generator) for _ in range(2))
    finite = like[like.isfinite()]
    if finite.numel() and float(finite.min()) >= 0:
        return (0.4 + 0.4 * length) * grid + 0.2 * start
    return (2 + 2 * length) * (grid - 0.5) + 1.5 * start - 0.5


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return 2 * _unit_uniform(like, generator) - 1


def _tiny(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return values so small that the dtype can hardly represent the difference between 1 + x and 1.

    If the given values are between zero and one, half of the samples (elements of a vector) are as close to one, or
    somewhat less: gates that stay open, and probabilities that are almost certain.
    """
    values = _normal(like, generator) * torch.finfo(like.dtype).eps
    finite = like[like.isfinite()]
    if not finite.numel() or float(finite.min()) < 0 or not 0.5 < float(finite.max()) <= 1:
        return values
    samples = like.shape if like.dim() < 2 else (like.shape[0], *[1] * (like.dim() - 1))
    # 1 - x is about 2^-7 at most, or 2^-5 in bfloat16, and far less in most samples
    most = max(3, -6 - round(math.log2(torch.finfo(like.dtype).eps)))
    nearness = torch.randint(2, most, samples, generator=generator, device=generator.device)
    near_one = 1 - torch.ldexp(values.abs(), nearness)
    is_near_one = torch.rand(samples, generator=generator, device=generator.device) < 0.5
    return torch.where(is_near_one, near_one, values)


def _large(like: Tensor, generator: torch.Generator) -> Tensor:
    return _normal(like, generator) * LARGE


def _huge(like: Tensor, generator: torch.Generator) -> Tensor:
    return _normal(like, generator) * HUGE


def _edges(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return rows whose first or last element is far larger than the others. This detects a loop that leaves out the
    first or the last element."""
    values = _normal(like, generator)
    if like.dim() == 0 or like.numel() == 0:
        return values
    rows = (*like.shape[:-1], 1)
    last = torch.randint(2, rows, generator=generator, device=generator.device) * (like.shape[-1] - 1)
    return values.scatter_(-1, last, HUGE)


def _mixed_scale(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return rows (or elements of a vector) that are each scaled by their own power of two."""
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


# --- structure: what the given tensor shows about the problem ------------------------------------------------------


def _in_place_of(
    given: Tensor, draw: Draw, leaf: Leaf | None, generator: torch.Generator, *, free: bool = False
) -> Tensor:
    """Return new values with the given tensor's zeros, dtype, device and strides, and its domain unless `free`."""
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
    if kernel.dim() >= 2 and (leaf is None or leaf.keeps_places):
        values.masked_fill_(kernel == 0, 0)
    if odd is not None and not _is_never_finite(leaf):
        values = torch.where(odd, kernel.to(values.dtype), values)
    if values.stride() == given.stride() and values.dtype == given.dtype:  # usually true, and saves a copy
        return values.requires_grad_(given.requires_grad)
    fresh = torch.empty_strided(kernel.shape, given.stride(), dtype=given.dtype, device=given.device)
    fresh.copy_(values)
    return fresh.expand(given.shape).requires_grad_(given.requires_grad)


def _is_never_finite(leaf: Leaf | None) -> bool:
    """Return whether no draw has a finite element. Then infinities are not structure."""
    return leaf is not None and leaf.kind == "floating" and math.isnan(leaf.low) and not leaf.special


def in_domain(values: Tensor, low: float, high: float) -> Tensor:
    """Return the values moved into the domain of given values between `low` and `high`: not negative, or within [0, 1].

    Values are not changed if some given values are negative, or if none is finite.
    """
    if not low >= 0 or low == math.inf:
        return values
    values = values.abs()
    # Values over one are replaced by their fraction: tiny stays tiny, ties stay ties, {0, 1} stays {0, 1}.
    return torch.where(values > 1, values.frac(), values) if high <= 1 else values


def in_order(leaf: Leaf | None) -> bool:
    """Return whether the rows of a tensor are ascending in every draw of the problem's inputs."""
    return leaf is not None and leaf.ascending


def overlaps(tensor: Tensor) -> bool:
    """Return whether elements of a tensor may share an address."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def unexpanded(given: Tensor) -> Tensor:
    """Return a view of the same memory with every expanded dimension reduced to size 1."""
    once = [1 if stride == 0 else size for size, stride in zip(given.shape, given.stride(), strict=True)]
    return given.detach().as_strided(once, given.stride())


def in_memory(given: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a tensor whose elements overlap in memory, after changing that memory as a vector."""
    span = 1 + sum(stride * (size - 1) for size, stride in zip(given.shape, given.stride(), strict=True))
    fresh = change(given.detach().as_strided((span,), (1,))).detach()
    return fresh.as_strided(given.shape, given.stride()).requires_grad_(given.requires_grad)


def replacing(replace: Replace, matrices: ReplaceMatrices | None = None) -> Distribution:
    """Return a distribution that replaces every floating-point tensor. A tensor that is given twice is replaced once.

    `matrices` replaces tensors of matrices that have a symmetry, such as Hermitian ones. Without it, such tensors are
    replaced like all others, and then get the symmetry of the given ones.
    """

    def distribution(
        inputs: Sequence[Any], generator: torch.Generator, structure: Structure | None = None
    ) -> list[Any]:
        fresh: dict[int, Tensor] = {}
        leaves = iter(structure.leaves_of(inputs) if structure is not None else ())

        def in_place_of(leaf: Tensor, known: Leaf | None) -> Tensor:
            return replace(leaf, known, generator)

        def through_reals(leaf: Tensor, known: Leaf | None) -> Tensor:
            pairs = torch.view_as_real(leaf.detach().resolve_conj())
            return torch.view_as_complex(replace(pairs, known, generator)).requires_grad_(leaf.requires_grad)

        def instead_of(leaf: Tensor, known: Leaf | None) -> Tensor:
            change = through_reals if leaf.is_complex() else in_place_of
            if leaf.numel() and overlaps(unexpanded(leaf)):
                return in_memory(leaf, partial(change, known=known))
            symmetry = kept_symmetry(unexpanded(leaf), known)
            if symmetry is None:
                return change(leaf, known)
            if matrices is not None:
                return matrices(leaf, known, generator, symmetry)
            values = change(leaf, known)
            unexpanded(values).copy_(symmetry.imposed(unexpanded(values)))
            return values

        def replaced(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            known = next(leaves, None)
            if not (leaf.is_floating_point() or leaf.is_complex()):
                return leaf
            if id(leaf) not in fresh:
                fresh[id(leaf)] = instead_of(leaf, known)
            return fresh[id(leaf)]

        return list(pytree.tree_map(replaced, list(inputs)))

    return distribution


def drawn(draw: Draw, *, free: bool = False) -> Distribution:
    """Return a distribution that draws all rows in the same way. With `free`, values may leave the domain of the given
    ones."""
    return replacing(lambda given, leaf, generator: _in_place_of(given, draw, leaf, generator, free=free))


def _as_given(inputs: Sequence[Any], generator: torch.Generator, structure: Structure | None = None) -> list[Any]:
    del generator, structure
    return list(inputs)


def mixed_rows(pool: Sequence[Draw], *, free: bool = False) -> Distribution:
    """Return a distribution with rows of four kinds at random positions: as given, and from three draws of the pool.

    `free` is as in `drawn`. Of matrices that have a symmetry, only the scales change.
    """

    def replace(given: Tensor, leaf: Leaf | None, generator: torch.Generator) -> Tensor:
        if given.dim() == 0 and free:  # a single number has no rows, so one draw replaces it
            number = int(torch.randint(len(pool), (), generator=generator, device=generator.device))
            return _in_place_of(given, pool[number], leaf, generator, free=True)
        if given.dim() == 0 or given.numel() == 0 or overlaps(given) or in_order(leaf):
            return given
        # usually each row along the last dimension has its own kind; sometimes each whole sample has
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

    return replacing(replace, _scaled_on_both_sides)


def _scaled_on_both_sides(given: Tensor, leaf: Leaf | None, generator: torch.Generator, symmetry: Symmetry) -> Tensor:
    """Return matrices whose rows and columns are scaled by the same random factors, which keeps their symmetry.

    A positive definite matrix stays positive definite, which factorizations need.
    """
    del symmetry
    if overlaps(given) or in_order(leaf):
        return given
    rows = (*given.shape[:-1], 1)
    powers = torch.randint(-SHRINKING, 1, rows, generator=generator, device=generator.device)
    scales = torch.ldexp(torch.ones_like(powers, dtype=torch.float32), powers).to(given.device, given.real.dtype)
    fresh = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=given.device)
    return fresh.copy_(given.detach() * scales * scales.mT).requires_grad_(given.requires_grad)


WILD = (_shifted, _negative, _large, _edges, _mixed_scale, _zeros, _ties, _one_hot, _tiny)
"""Functions that draw the values of single odd rows (rows unlike all others)."""
MILD = (_shifted, _uniform, _zeros, _ties, _one_hot, _tiny)
"""Functions that draw the values of single odd rows, if those in WILD make the reference overflow."""
KINDS_OF_ROWS, MILD_KINDS_OF_ROWS = (_positive, _rising), (_mildly_positive, _rising)
"""Functions that draw rows with a property that no long random row has. They are among the odd rows of cases, but not
among those of timed calls, which have few."""
SIGNED, SIGNED_MILD = (_negative, _large, _mixed_scale), (_normal, _shifted, _uniform)
"""Functions that draw values for tensors that leave the domain of their given values (`other_ranges.py`). SIGNED_MILD
is tried if those in SIGNED make the reference fail."""

DISTRIBUTIONS: Mapping[str, Distribution] = MappingProxyType(
    {
        "as_given": _as_given,
        "shifted": drawn(_shifted),
        "negative": drawn(_negative),
        "positive": drawn(_positive),
        "rising": drawn(_rising),
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
"""All distributions by name."""
MILDER: Mapping[str, Distribution] = MappingProxyType(
    {"mixed_rows": mixed_rows(MILD), "positive": drawn(_mildly_positive)}
)
"""Replacements for the distributions of the same name, if those make the reference overflow."""
