"""Computes a bound that no program can beat: its inputs must come from memory, and its outputs must go there. (torch)

The arithmetic of the reference is no bound, since algebra can reduce it. Data that fits into a cache gives no bound
either. So this applies only to problems much larger than the last-level cache, and counts only what the reference
reads.
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
    """Return the bytes of the outputs, and of those pieces of the inputs that change an output when they change.

    Views of weights, and of unchanged inputs, move nothing. Nor do pages of zeros: the system gives them out as zeros,
    and a program need not touch them.
    """
    output = _computed(reference, inputs)
    return sum(_bytes_written(tensor) for tensor in output) + sum(
        _bytes_read(reference, inputs, tensor, output) for tensor in tensors_in(inputs) if _is_dense(tensor)
    )


def _bytes_written(tensor: torch.Tensor) -> int:
    flat = tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)
    pages = len(flat) // mmap.PAGESIZE
    if not pages:
        return least_bytes([tensor])
    zeros = pages - int(flat[: pages * mmap.PAGESIZE].view(pages, -1).any(dim=1).sum())
    return max(0, least_bytes([tensor]) - zeros * mmap.PAGESIZE)


def _bytes_read(reference: Reference, inputs: list[Any], tensor: torch.Tensor, output: Any) -> int:
    read = 0
    for piece in tensor.view(-1).chunk(PIECES):
        kept = piece.clone()
        # other values of the same kind: those of the piece, in another order
        piece.copy_(kept.roll(1).neg() if piece.is_floating_point() else kept.roll(1))
        if not same(_computed(reference, inputs), output):
            read += piece.numel() * piece.element_size()
        piece.copy_(kept)
    return read


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.requires_grad


def _computed(reference: Reference, inputs: list[Any]) -> list[torch.Tensor]:
    """Return torch's own outputs without views of weights, and of inputs that it leaves as they are."""
    given = cloned(inputs)
    own = reference.own_result(given)
    views = {number for number, _ in find_aliases(own, given)} if same(given, inputs) else set[int]()
    views |= {number for number, _ in find_aliases(own, reference.state())}
    return [tensor for number, tensor in enumerate(tensor_leaves(own)) if number not in views]
