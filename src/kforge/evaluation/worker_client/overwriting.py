"""Writes to outputs that a program has returned, as a caller may. (torch)

A program that returns the memory of an output again must not rely on what it left there. So outputs are overwritten,
each in one of two ways: a random stretch of its memory (often all of it), or a few random elements. The first way also
reaches memory with few elements. The second one escapes a program that looks at some elements before it reuses the
memory, and would clear all of it then.

The written values must be wrong wherever they are left. Zeros and ones of masks are swapped. Other numbers are larger
than any that the reference returns, but not by much: a module may go on with an output that it keeps.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from kforge.evaluation.constants import LEAST_SCALE
from kforge.evaluation.transport.shared_memory import bytes_named, extent, is_dense

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from kforge.evaluation.transport.wire import TensorRef

ELEMENTS = 3
"""Elements that are overwritten where no stretch is."""
ALL_OF_IT = 0.25
"""Share of the stretches that are the whole output."""
AT_A_TIME = 1 << 24
"""Elements of an output that are processed at a time, to save memory."""


class Edit(NamedTuple):
    """What is written to one output."""

    places: list[tuple[int, ...]]
    """Elements, by their indices."""
    numbers: torch.Tensor
    """The numbers that are written to each of them."""
    stretch: tuple[float, float] | None = None
    """Where the first number is written to a stretch of memory instead: its begin and end, as shares of the output."""

    def stretched(self, chance: random.Random) -> Edit:
        """Return the same edit for a random stretch, by a number or by none (NaN)."""
        numbers = self.numbers
        if chance.random() < 0.5 and (numbers.is_floating_point() or numbers.is_complex()):
            numbers = torch.full_like(numbers, torch.nan)
        begin, end = sorted((chance.random(), chance.random()))
        return Edit(self.places, numbers, (0.0, 1.0) if chance.random() < ALL_OF_IT else (begin, end))


def edits_of(shape: Sequence[int], sample: torch.Tensor, scale: float, chance: random.Random, count: int) -> list[Edit]:
    """Choose what is written to this many outputs of this shape: some elements of each.

    `sample`: an output of the reference, to find out what would be wrong; `scale`: see `scale_of`.
    """
    if 0 in shape:
        return [Edit([], sample.new_zeros(0))] * count
    places = [tuple(map(chance.randrange, shape)) for _ in range(count * ELEMENTS)]
    now = sample.new_zeros(len(places))
    if sample.dim() == len(shape) and sample.numel():
        indices = torch.tensor(places, dtype=torch.int64).reshape(len(places), len(shape))
        last = torch.tensor(sample.shape, dtype=torch.int64) - 1
        at = indices.minimum(last).to(sample.device)
        now = sample[tuple(at.T)] if len(shape) else sample.expand(len(places))
    numbers = _wrong_numbers(now, scale, chance)
    each = range(0, len(places), ELEMENTS)
    return [Edit(places[first : first + ELEMENTS], numbers[first : first + ELEMENTS]) for first in each]


def scale_of(output: torch.Tensor) -> float:
    """Return the largest magnitude among the finite numbers of an output; 0 for integers."""
    if not (output.is_floating_point() or output.is_complex()) or not output.numel():
        return 0.0
    flat = _memory_of(output) if is_dense(tuple(output.shape), output.stride()) else output.reshape(-1)
    parts = (flat[begin : begin + AT_A_TIME].abs() for begin in range(0, len(flat), AT_A_TIME))
    return max(float(part.nan_to_num(0.0, 0.0, 0.0).max()) for part in parts)


def overwrite_in_process(pid: int, ref: TensorRef, edit: Edit) -> bool:
    """Write to a tensor in the host memory of another process, which should be frozen. Returns False if it is
    read-only."""
    if not bytes_named(ref):
        return True
    itemsize = getattr(torch, ref.dtype).itemsize
    raw = edit.numbers.to(getattr(torch, ref.dtype)).view(torch.uint8).numpy().tobytes()
    stretch = _stretch(edit, ref.shape, ref.strides)
    if stretch is not None:
        writes = [(stretch[0], raw[:itemsize] * (stretch[1] - stretch[0]))]
    else:
        offsets = (sum(map(int.__mul__, place, ref.strides)) for place in edit.places)
        writes = [(offset, raw[n * itemsize :][:itemsize]) for n, offset in enumerate(offsets)]
    is_open = False
    try:
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            is_open = True
            for offset, value in writes:
                memory.seek(ref.offset + offset * itemsize)
                memory.write(value)
    except OSError:
        return not is_open  # a process that is gone, or a kernel that does not allow it, says nothing about the memory
    return True


def overwrite(tensor: torch.Tensor, edit: Edit) -> None:
    """Write to a tensor that this process has mapped, in the same way."""
    if not tensor.numel():
        return
    numbers = edit.numbers.to(tensor.dtype)
    stretch = _stretch(edit, tuple(tensor.shape), tensor.stride())
    if stretch is not None:
        _memory_of(tensor)[slice(*stretch)] = numbers[0]
        return
    for place, number in zip(edit.places, numbers, strict=True):
        tensor[place] = number


def _stretch(edit: Edit, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the elements in memory from and up to which a stretch is written; None where single elements are.

    Memory between the elements of an output does not belong to the output.
    """
    if edit.stretch is None or not is_dense(shape, strides):
        return None
    count = extent(shape, strides)
    begin = int(edit.stretch[0] * count)
    return begin, max(begin + 1, int(edit.stretch[1] * count))


def _memory_of(dense: torch.Tensor) -> torch.Tensor:
    return dense.as_strided((extent(tuple(dense.shape), dense.stride()),), (1,))


def _wrong_numbers(now: torch.Tensor, scale: float, chance: random.Random) -> torch.Tensor:
    """Return numbers that are wrong in place of these, and in place of any that are no larger than the scale."""
    if not (now.is_floating_point() or now.is_complex()):
        return (now == 0).to(now.dtype)
    scale = min(max(scale, LEAST_SCALE) if scale else 1.0, torch.finfo(now.dtype).max / 4)
    wide = torch.float64 if now.itemsize // (1 + now.is_complex()) == torch.float64.itemsize else torch.float32
    far = torch.tensor([(2 + chance.random()) * scale for _ in now], dtype=wide, device=now.device)
    # a number this large was written here before: in a module that keeps it, it must not grow for ever
    return torch.where(now.real.to(wide) > scale, torch.zeros_like(far), far).to(now.dtype)
