"""Index outputs: an argmax or a top-k may name another place than torch does where equal values stand. (torch)"""

from __future__ import annotations

import torch


def points_alike(values: torch.Tensor, own: torch.Tensor, got: torch.Tensor) -> bool:
    """Whether two index tensors name places of `values` that hold the same numbers, along some dimension of it.

    On inputs without ties this says no more than that they are equal, so it excuses nothing else.
    """
    if own.dtype != torch.int64 or not own.numel() or not values.numel():
        return False
    if own.dim() == 0:  # into the flattened tensor, as an argmax without a dimension counts
        values, own, got = values.reshape(-1), own.reshape(1), got.reshape(1)
    return any(_alike_along(values, dimension, own, got) for dimension in range(values.dim()))


def names_one_twice(own: torch.Tensor, got: torch.Tensor) -> bool:
    """Whether a program names some place twice where torch names different ones, along any dimension."""
    return any(_all_different(own, at) and not _all_different(got, at) for at in range(own.dim()))


def _alike_along(values: torch.Tensor, dimension: int, own: torch.Tensor, got: torch.Tensor) -> bool:
    if own.dim() == values.dim() - 1:  # the dimension was reduced away
        own, got = own.unsqueeze(dimension), got.unsqueeze(dimension)
    others = [size for at, size in enumerate(values.shape) if at != dimension]
    if own.dim() != values.dim() or [size for at, size in enumerate(own.shape) if at != dimension] != others:
        return False
    if not _within(values.shape[dimension], own, got):
        return False
    return torch.equal(values.gather(dimension, own), values.gather(dimension, got)) and _all_different(got, dimension)


def _all_different(indices: torch.Tensor, dimension: int) -> bool:
    """A top-k may not name one of its equal values twice."""
    ordered = indices.sort(dim=dimension).values
    return not bool((ordered.diff(dim=dimension) == 0).any())


def _within(size: int, *indices: torch.Tensor) -> bool:
    return all(int(each.min()) >= 0 and int(each.max()) < size for each in indices)
