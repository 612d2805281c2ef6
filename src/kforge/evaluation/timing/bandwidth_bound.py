"""Computes the least bytes that any program must move: the inputs that matter, and the outputs. (torch)

A program that takes less time than these bytes need at peak bandwidth cannot be honest. The arithmetic of the reference
gives no such bound, because algebra can reduce it. Data that fits into a cache gives none either. So the bound is used
only for problems much larger than the last-level cache.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import torch

from kforge.evaluation.constants import PIECES
from kforge.evaluation.transport.aliases import find_aliases, tensor_leaves
from kforge.problems.tensors import cloned, least_bytes, same, tensors_in

if TYPE_CHECKING:
    from kforge.evaluation.reference.reference import Reference


def bytes_that_matter(reference: Reference, inputs: list[Any]) -> int:
    """Return the bytes of the outputs, plus those of the input pieces whose change changes an output.

    Views of weights and of unchanged inputs move nothing. Pages of zeros do not count either: the system hands out
    memory that is already zero.
    """
    output = _computed(reference, inputs)
    return sum(_bytes_written(tensor) for tensor in output) + sum(
        _bytes_read(reference, inputs, tensor, output) for tensor in tensors_in(inputs) if _is_dense(tensor)
    )


def _bytes_written(tensor: torch.Tensor) -> int:
    """Return the bytes of an output without its pages of zeros."""
    flat = tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)
    pages = len(flat) // mmap.PAGESIZE
    if not pages:
        return least_bytes([tensor])
    zeros = pages - int(flat[: pages * mmap.PAGESIZE].view(pages, -1).any(dim=1).sum())
    return max(0, least_bytes([tensor]) - zeros * mmap.PAGESIZE)


def _bytes_read(reference: Reference, inputs: list[Any], tensor: torch.Tensor, output: Any) -> int:
    """Return the bytes of those pieces of an input whose change changes an output."""
    read = 0
    for piece in tensor.view(-1).chunk(PIECES):
        kept = piece.clone()
        # other values of the same kind: those of the piece in another order, negated if floating-point
        piece.copy_(kept.roll(1).neg() if piece.is_floating_point() else kept.roll(1))
        if not same(_computed(reference, inputs), output):
            read += piece.numel() * piece.element_size()
        piece.copy_(kept)
    return read


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.requires_grad


def _computed(reference: Reference, inputs: list[Any]) -> list[torch.Tensor]:
    """Return the reference's outputs, without views of weights and of inputs that it leaves unchanged."""
    given = cloned(inputs)
    own = reference.own_result(given)
    views = {number for number, _ in find_aliases(own, given)} if same(given, inputs) else set[int]()
    views |= {number for number, _ in find_aliases(own, reference.state())}
    return [tensor for number, tensor in enumerate(tensor_leaves(own)) if number not in views]
