"""Reads tensors in the host memory of another process. (torch)

A program may return a part of a larger buffer, with gaps between the elements. Only the elements are kept, and wide
gaps are skipped. The number of bytes that are read for one tensor is limited, whatever strides a worker reports.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kforge.errors import ChannelError
from kforge.evaluation.transport.shared_memory import bytes_named, extent, is_dense

if TYPE_CHECKING:
    from io import FileIO

    from kforge.evaluation.transport.wire import TensorRef

WIDE_GAP = 1 << 15
"""Bytes. A longer gap is skipped: reading it would take longer than another system call."""
A_CALL = 1 << 12
"""Cost of a system call, as the number of bytes that could be read in the same time."""
PIECE = 16 << 20
"""Most bytes of a tensor with gaps that are read at once."""
MOST_READ, SPREAD = 1 << 30, 4
"""Most bytes that are read for one tensor with gaps: the larger of MOST_READ and SPREAD times the caller's limit."""


def read_process(pid: int, ref: TensorRef, limit: int) -> torch.Tensor:
    """Return a copy of a tensor in the host memory of another process, which should be stopped meanwhile.

    Raises ChannelError if the memory cannot be read, or if the tensor has more than `limit` bytes.
    """
    dtype: torch.dtype = getattr(torch, ref.dtype)
    if any(n < 0 for n in (*ref.shape, *ref.strides, ref.offset)):
        raise ChannelError("the worker reports an output with a negative size, stride or address")
    if 0 in ref.shape:
        return torch.empty(ref.shape, dtype=dtype)
    dense = is_dense(ref.shape, ref.strides)
    # of a repeated dimension only one element is read
    kept = sorted((d for d, n in enumerate(ref.shape) if n > 1 and ref.strides[d]), key=lambda d: -ref.strides[d])
    shape, strides = tuple(ref.shape[d] for d in kept), tuple(ref.strides[d] for d in kept)
    bytes_named(ref)
    size = (extent(shape, strides) if dense else math.prod(shape)) * dtype.itemsize
    if size > limit:
        raise ChannelError("the worker reports an output that is larger than any right output")
    if not dense and _cost(shape, strides, dtype.itemsize) > max(MOST_READ, SPREAD * limit):
        raise ChannelError("an output is spread over more memory than kforge reads")
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            if dense:
                return _stretch(memory, ref.offset, size).view(dtype).as_strided(ref.shape, ref.strides)
            found = torch.empty(shape, dtype=dtype)
            _gather(memory, ref.offset, found, strides)
    except (OSError, OverflowError) as error:
        raise ChannelError(f"an output's memory cannot be read: {error}") from None
    ordered = [1] * len(ref.shape)
    for own, dimension in enumerate(kept):
        ordered[dimension] = found.stride(own)
    steps = [step if d in kept else 0 for d, step in enumerate(ordered)]
    return found.as_strided(ref.shape, steps)


def _gather(memory: FileIO, at: int, found: torch.Tensor, strides: tuple[int, ...]) -> None:
    """Fill `found` with elements from the address `at` on. The dimensions of `found` are ordered by decreasing
    stride."""
    span = extent(tuple(found.shape), strides) * found.itemsize
    if span <= PIECE and not _has_wide_gap(tuple(found.shape), strides, found.itemsize):
        found.copy_(_stretch(memory, at, span).view(found.dtype).as_strided(found.shape, strides))
    elif len(found) == 1:
        _gather(memory, at, found[0], strides[1:])
    else:
        half = len(found) // 2
        _gather(memory, at, found[:half], strides)
        _gather(memory, at + half * strides[0] * found.itemsize, found[half:], strides)


def _cost(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes that must be read, with each system call counted as A_CALL bytes."""
    for first in range(len(shape) + 1):
        if not _has_wide_gap(shape[first:], strides[first:], itemsize):
            span = extent(shape[first:], strides[first:]) * itemsize
            return math.prod(shape[:first]) * max(span, A_CALL)
    raise AssertionError("a single element has no gap")


def _has_wide_gap(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Return whether a strided tensor has a gap of more than WIDE_GAP bytes."""
    return any(
        shape[d] > 1 and (strides[d] - extent(shape[d + 1 :], strides[d + 1 :])) * itemsize > WIDE_GAP
        for d in range(len(shape))
    )


def _stretch(memory: FileIO, at: int, size: int) -> torch.Tensor:
    """Return `size` bytes from the address `at` on. Raises OSError if they cannot be read."""
    data = torch.empty(size, dtype=torch.uint8)
    room = memoryview(data.numpy().data)
    memory.seek(at)
    done = 0
    while done < size:
        done += memory.readinto(room[done:]) or _unreadable()
    return data


def _unreadable() -> int:
    raise OSError("nothing is there")
