"""Inputs of other kinds than the problem's own, so that a candidate cannot overfit one distribution. (torch)

Each distribution takes the inputs as given and makes new ones of the same structure, shapes, dtypes and strides.
Only floating-point tensors change; integers, booleans, None and Python scalars stay. What a value means is kept as
far as the given values show it:

- a tensor without negative values stays without, one within [0, 1] stays within (variances, probabilities);
- elements that are not finite stay where they are (attention masks);
- a tensor of two or more dimensions keeps its exact zeros (triangular, banded or masked matrices, an all-zero
  state), and a square one that is symmetric stays symmetric;
- the same tensor given twice stays the same tensor;
- memory that overlaps other than by an expanded dimension (a sliding window) stays as given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Distribution = Callable[[Sequence[Any], torch.Generator], list[Any]]
_Draw = Callable[[Tensor, torch.Generator], Tensor]

OFFSET = 3.0
"""Mean of `shifted`, in standard deviations: sums that cancel in a centred sample no longer do."""
LARGE = 256.0
"""exp(256) overflows in single precision, and 256 squared in half: an unstable formula shows …"""
HUGE = 2.0**14
"""… also where the problem scales its inputs down first. What makes the reference itself overflow is dropped."""
BELOW = 100.0
"""exp(-100) is next to nothing in single precision."""
EXPONENTS = 8
"""Rows of `mixed_scale` differ by up to 2**16."""


# --- values: what is drawn, before the given tensor's domain and structure are imposed -----------------------


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=generator.device, dtype=_working_dtype(like))


def _shifted(like: Tensor, generator: torch.Generator) -> Tensor:
    return _normal(like, generator) + OFFSET


def _negative(like: Tensor, generator: torch.Generator) -> Tensor:
    """All far below zero, where exp is nothing: a maximum that starts from zero shows."""
    return -(_normal(like, generator) * LARGE).abs() - BELOW


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return 2 * _unit_uniform(like, generator) - 1


def _tiny(like: Tensor, generator: torch.Generator) -> Tensor:
    """So small beside one that the dtype can hardly tell 1 + x from 1."""
    return _normal(like, generator) * torch.finfo(like.dtype).eps


def _large(like: Tensor, generator: torch.Generator) -> Tensor:
    return _normal(like, generator) * LARGE


def _huge(like: Tensor, generator: torch.Generator) -> Tensor:
    return _normal(like, generator) * HUGE


def _edges(like: Tensor, generator: torch.Generator) -> Tensor:
    """The first or the last element of a row dwarfs the others: a loop that leaves one of them out shows."""
    values = _normal(like, generator)
    if like.dim() == 0 or like.numel() == 0:
        return values
    rows = (*like.shape[:-1], 1)
    last = torch.randint(2, rows, generator=generator, device=generator.device) * (like.shape[-1] - 1)
    return values.scatter_(-1, last, HUGE)


def _mixed_scale(like: Tensor, generator: torch.Generator) -> Tensor:
    """Each row (each element of a vector) has its own power of two."""
    rows = like.shape if like.dim() < 2 else (*like.shape[:-1], 1)
    powers = torch.randint(-EXPONENTS, EXPONENTS + 1, rows, generator=generator, device=generator.device)
    return torch.ldexp(_normal(like, generator), powers)


def _zeros(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.zeros(like.shape, device=generator.device, dtype=_working_dtype(like))


def _ties(like: Tensor, generator: torch.Generator) -> Tensor:
    """Multiples of a half, so that many elements are equal."""
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


def _in_place_of(given: Tensor, draw: _Draw, generator: torch.Generator) -> Tensor:
    """Fresh values in the given tensor's domain, zero pattern, symmetry, dtype, device and strides."""
    # An expanded dimension holds one element that is read many times: draw it once, then expand it again.
    once = [1 if stride == 0 else size for size, stride in zip(given.shape, given.stride(), strict=True)]
    kernel = given.detach().as_strided(once, given.stride())
    if given.numel() == 0 or _overlaps(kernel):
        return given
    values = draw(kernel, generator).to(kernel.device)
    low, high = map(float, kernel.aminmax())
    all_finite = math.isfinite(low) and math.isfinite(high)  # NaN would be both
    odd = None if all_finite else ~kernel.isfinite()
    if odd is not None and not bool(odd.all()):
        low, high = map(float, kernel[~odd].aminmax())
    values = _in_domain(values, low, high)
    if _symmetric(kernel):
        values = values.triu() + values.triu(1).mT
    if kernel.dim() >= 2:
        values.masked_fill_(kernel == 0, 0)
    if odd is not None:
        values = torch.where(odd, kernel.to(values.dtype), values)
    if values.stride() == given.stride() and values.dtype == given.dtype:  # by far the most, and some are large
        return values.requires_grad_(given.requires_grad)
    fresh = torch.empty_strided(once, given.stride(), dtype=given.dtype, device=given.device)
    fresh.copy_(values)
    return fresh.expand(given.shape).requires_grad_(given.requires_grad)


def _in_domain(values: Tensor, low: float, high: float) -> Tensor:
    """As those lie that are given, between `low` and `high`; where none of them is finite, anywhere."""
    if not low >= 0 or low == math.inf:
        return values
    values = values.abs()
    # What is over one is folded back by its fraction: tiny stays tiny, ties stay ties, {0, 1} stays {0, 1}.
    return torch.where(values > 1, values.frac(), values) if high <= 1 else values


def _symmetric(given: Tensor) -> bool:
    return given.dim() >= 2 and given.shape[-1] == given.shape[-2] and torch.equal(given, given.mT)


def _overlaps(tensor: Tensor) -> bool:
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def _drawn(draw: _Draw) -> Distribution:
    def distribution(inputs: Sequence[Any], generator: torch.Generator) -> list[Any]:
        fresh: dict[int, Tensor] = {}

        def replace(leaf: Any) -> Any:
            if not (isinstance(leaf, Tensor) and leaf.is_floating_point()):
                return leaf
            if id(leaf) not in fresh:
                fresh[id(leaf)] = _in_place_of(leaf, draw, generator)
            return fresh[id(leaf)]

        return list(pytree.tree_map(replace, list(inputs)))

    return distribution


def _as_given(inputs: Sequence[Any], _: torch.Generator) -> list[Any]:
    return list(inputs)


DISTRIBUTIONS: Mapping[str, Distribution] = MappingProxyType(
    {
        "as_given": _as_given,
        "shifted": _drawn(_shifted),
        "negative": _drawn(_negative),
        "uniform": _drawn(_uniform),
        "tiny": _drawn(_tiny),
        "large": _drawn(_large),
        "huge": _drawn(_huge),
        "edges": _drawn(_edges),
        "mixed_scale": _drawn(_mixed_scale),
        "zeros": _drawn(_zeros),
        "ties": _drawn(_ties),
        "one_hot": _drawn(_one_hot),
        "binary": _drawn(_binary),
    }
)
