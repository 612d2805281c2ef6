"""Finds, copies and compares tensors inside nested inputs and outputs. (torch)"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from kforge.records import TensorSpec

HOST = torch.empty(0).device
"""The device of the host, whatever the platform is."""
_INTEGERS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
"""Integer dtypes by size in bytes."""


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of nested lists, tuples and dicts, in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def spec(tensor: torch.Tensor) -> TensorSpec:
    """Return shape and dtype of a tensor."""
    return TensorSpec(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))


def least_bytes(tensors: list[torch.Tensor]) -> int:
    """Return the bytes that must be moved to access each of these tensors once. Shared memory counts once."""
    needed: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        wanted = needed.get(storage.data_ptr(), 0) + tensor.numel() * tensor.element_size()
        needed[storage.data_ptr()] = min(wanted, storage.nbytes())
    return sum(needed.values())


def same(one: Any, other: Any) -> bool:
    """Return whether two nested values have bitwise equal tensors. NaN equals NaN; values other than tensors do not
    count."""
    ours, theirs = tensors_in(one), tensors_in(other)
    return [spec(t) for t in ours] == [spec(t) for t in theirs] and all(
        _same_bits(a, b) for a, b in zip(ours, theirs, strict=True)
    )


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of equal shape and dtype are bitwise equal. They are compared in words as long as
    possible, because 8-byte words are five times as fast as bytes."""
    flat = [tensor.detach().resolve_conj().resolve_neg().contiguous().flatten() for tensor in (one, other)]
    places = [size for each in flat for size in (each.nbytes, each.storage_offset() * each.element_size())]
    word = next(dtype for size, dtype in _INTEGERS.items() if not any(place % size for place in places))
    ours, theirs = (each.view(word) for each in flat)
    return torch.equal(ours, theirs)


def cloned(value: Any) -> Any:
    """Return a nested value with copies of its tensors."""
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, value)


def all_finite(value: Any) -> bool:
    """Return whether no tensor of a nested value has an infinite element or NaN."""
    return all(bool(tensor.isfinite().all()) for tensor in tensors_in(value))
