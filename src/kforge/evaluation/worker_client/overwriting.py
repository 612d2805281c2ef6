"""Writing to outputs that a program has returned, as a caller may. (torch)

A program that hands out the memory of an output again must not rely on what it left there. So outputs are overwritten,
each in one of two ways: the whole of it, or some random elements by ordinary numbers. The first way shows also to a
program that looks at few elements before it uses the memory again, and would clear all of it then; the second one does
not.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kforge.evaluation.transport.shared_memory import bytes_named, extent, has_overlap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.evaluation.transport.wire import TensorRef

ELEMENTS = 3
"""Elements that are overwritten where not all are."""


def overwrite_in_process(pid: int, ref: TensorRef, seed: int, *, whole: bool) -> bool:
    """Write to a tensor in the host memory of another process, which should be frozen; False if it is read-only.

    Nothing is done to a whole tensor whose elements do not lie side by side, since others may lie between them. The
    seed chooses elements and numbers.
    """
    size, itemsize = bytes_named(ref), getattr(torch, ref.dtype).itemsize
    chance = random.Random(seed)  # noqa: S311 - as secret as its seed
    if not size:
        return True
    if whole:
        dense = size == extent(ref.shape, ref.strides) * itemsize
        writes = [(0, b"\xff" * size)] if dense else []
    else:
        offsets = (sum(map(int.__mul__, place, ref.strides)) for place in _places(ref.shape, chance))
        writes = [(offset * itemsize, _bytes(ref.dtype, chance)) for offset in offsets]
    is_open = False
    try:
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            is_open = True
            for offset, value in writes:
                memory.seek(ref.offset + offset)
                memory.write(value)
    except OSError:
        return not is_open  # a process that is gone, or a kernel that does not allow it, says nothing about the memory
    return True


def overwrite(tensor: torch.Tensor, seed: int, *, whole: bool) -> None:
    """Write to a tensor that this process has mapped, in the same way."""
    if not tensor.numel() or has_overlap(tensor):
        return
    if whole:
        tensor.fill_(torch.nan if tensor.is_floating_point() or tensor.is_complex() else 1)
        return
    chance = random.Random(seed)  # noqa: S311 - as secret as its seed
    for place in _places(tensor.shape, chance):
        tensor[place] = _number(chance).to(tensor.dtype)


def _places(shape: Sequence[int], chance: random.Random) -> list[tuple[int, ...]]:
    return [tuple(map(chance.randrange, shape)) for _ in range(ELEMENTS)]


def _number(chance: random.Random) -> torch.Tensor:
    return torch.tensor(1 + chance.randrange(64) / 64)


def _bytes(dtype: str, chance: random.Random) -> bytes:
    return bytes(_number(chance).to(getattr(torch, dtype)).reshape(1).view(torch.uint8).tolist())
