"""Writing to outputs that a program has returned, as a caller may. (torch)

A program that hands out the memory of an output again must not rely on what it left there. So outputs are overwritten,
each in one of two ways: the whole of it, or some random elements by ordinary numbers. The first way shows also to a
program that looks at few elements before it uses the memory again, and would clear all of it then; the second one does
not.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kforge.evaluation.transport.shared_memory import bytes_named, extent, has_overlap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.evaluation.transport.wire import TensorRef

ELEMENTS = 3
"""Elements that are overwritten where not all are."""


def overwrite_in_process(pid: int, ref: TensorRef, *, whole: bool) -> None:
    """Write to a tensor in the host memory of another process, which should be held still.

    Nothing is done to a whole tensor whose elements do not lie side by side, since others may lie between them, nor to
    one that cannot be written to.
    """
    size, itemsize = bytes_named(ref), getattr(torch, ref.dtype).itemsize
    if not size:
        return
    if whole:
        dense = size == extent(ref.shape, ref.strides) * itemsize
        writes = [(0, b"\xff" * size)] if dense else []
    else:
        offsets = (sum(map(int.__mul__, place, ref.strides)) for place in _places(ref.shape))
        writes = [(offset * itemsize, _bytes(ref.dtype)) for offset in offsets]
    with suppress(OSError), Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        for offset, value in writes:
            memory.seek(ref.offset + offset)
            memory.write(value)


def overwrite(tensor: torch.Tensor, *, whole: bool) -> None:
    """The same to a tensor that can be reached from here."""
    if not tensor.numel() or has_overlap(tensor):
        return
    if whole:
        tensor.fill_(torch.nan if tensor.is_floating_point() or tensor.is_complex() else 1)
        return
    for place in _places(tensor.shape):
        tensor[place] = _number().to(tensor.dtype)


def _places(shape: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(map(secrets.randbelow, shape)) for _ in range(ELEMENTS)]


def _number() -> torch.Tensor:
    return torch.tensor(1 + secrets.randbelow(64) / 64)


def _bytes(dtype: str) -> bytes:
    return bytes(_number().to(getattr(torch, dtype)).reshape(1).view(torch.uint8).tolist())
