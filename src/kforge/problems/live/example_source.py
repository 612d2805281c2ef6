"""Writes the source of `get_inputs` for a live module: it draws inputs like the examples. (torch)"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kforge.problems.live.literals import LARGEST_LITERAL, Code, source_of


def inputs_source(example_inputs: tuple[Any, ...]) -> list[str]:
    """Return for each input an expression that draws a similar one. Values other than tensors are written as they are.

    Raises ProblemError for a value that cannot be written as source.
    """
    drawn = pytree.tree_map_only(Tensor, lambda example: Code(_draw(example)), example_inputs)
    return [source_of(value) for value in drawn]


def _draw(example: Tensor) -> str:
    """Return an expression for a tensor of the same shape, dtype and dense memory order. Other layouts become
    contiguous."""
    order = sorted(range(example.dim()), key=lambda dim: (-example.stride()[dim], dim))
    permuted = example.detach().permute(order)
    if not permuted.is_contiguous() or order == sorted(order):
        return _draw_contiguous(example.detach())
    back = tuple(order.index(dim) for dim in range(example.dim()))
    return f"({_draw_contiguous(permuted)}).permute{back}"


def _draw_contiguous(example: Tensor) -> str:
    """Return an expression for a contiguous tensor of the same shape and dtype, with similar values."""
    shape, dtype = source_of(tuple(example.shape)), example.dtype
    if example.numel() == 0:
        return f"torch.empty({shape}, dtype={dtype})"
    if dtype == torch.bool:
        return f"torch.rand({shape}) < {example.float().mean().item():.6g}"
    if dtype.is_complex:
        return f"torch.randn({shape}, dtype={dtype})"
    if dtype.is_floating_point and example.isfinite().all():
        return _normal(example, shape)
    if example.dim() == 1 and len(example) > 1 and not dtype.is_floating_point and (example.long().diff() > 0).all():
        return _ascending(example)
    values = torch.unique(example)
    if values.numel() > LARGEST_LITERAL and not dtype.is_floating_point:
        return f"torch.randint({values[0].item()}, {int(values[-1]) + 1}, {shape}, dtype={dtype})"
    # A mask of zeros and infinities, a few class indices: draw from the example's own values.
    values = values[:LARGEST_LITERAL]
    return f"{source_of(values)}[torch.randint({values.numel()}, {shape})]"


def _ascending(example: Tensor) -> str:
    """Return an expression for ascending integers such as offsets. The order and the first value are kept, because a
    module may rely on them."""
    first, last, dtype = int(example[0]), int(example[-1]), example.dtype
    steps = torch.unique(example.long().diff())
    if len(steps) == 1:
        return f"torch.arange({first}, {last + 1}, {int(steps[0])}, dtype={dtype})"
    if example.numel() <= LARGEST_LITERAL:
        return source_of(example)
    rest = f"torch.randint({first}, {last + 1}, ({len(example) - 1},), dtype={dtype}).sort().values"
    return f"torch.cat([torch.tensor([{first}], dtype={dtype}), {rest}])"


def _normal(example: Tensor, shape: str) -> str:
    """Return an expression for normally distributed numbers with the example's mean and standard deviation.

    If all values have the same sign, the drawn numbers are clamped to the example's smallest and largest value.
    """
    exact = example.double()
    mean, std = exact.mean().item(), exact.std(correction=0).item()
    if std == 0:
        return f"torch.full({shape}, {mean!r}, dtype={example.dtype})"
    draw = f"{mean:.6g} + {std:.6g} * torch.randn({shape})"
    low, high = example.min().item(), example.max().item()
    if low >= 0 or high <= 0:
        # A sign that never changes has a meaning (a variance, a probability): stay within the example's own range.
        draw = f"({draw}).clamp({low!r}, {high!r})"
    return draw if example.dtype == torch.float32 else f"({draw}).to({example.dtype})"
