"""Writes wrong values to outputs that a program has returned, as a caller may. (torch)

A program that returns the same memory again must not rely on its old contents. So outputs are overwritten in one of two
ways: a random stretch of memory, often the whole output, or a few random elements. A stretch also finds programs that
reuse only a small part of an output. A few elements also deceive a program that looks at some elements before it reuses
memory, and would clear it.

The written values must be wrong wherever they stay. In masks, zeros and ones are swapped. Other numbers are larger than
any that the reference returns, but not by much: a module may compute with an output that it keeps.
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
"""Number of single elements that are overwritten in an output."""
ALL_OF_IT = 0.25
"""Share of the overwritten stretches of memory that cover the whole output."""
AT_A_TIME = 1 << 24
"""Elements of an output that are processed at a time, to save memory."""


class Edit(NamedTuple):
    """The wrong values that the referee writes to one output, and where."""

    places: list[tuple[int, ...]]
    """Indices of the single elements that are overwritten."""
    numbers: torch.Tensor
    """The number that is written to each of the elements in `places`."""
    stretch: tuple[float, float] | None = None
    """If not None, the first number is written to a stretch of memory instead. Its begin and end, as shares of the
    output."""

    def stretched(self, chance: random.Random) -> Edit:
        """Return the same edit for a random stretch. Its value is a number or NaN."""
        numbers = self.numbers
        if chance.random() < 0.5 and (numbers.is_floating_point() or numbers.is_complex()):
            numbers = torch.full_like(numbers, torch.nan)
        begin, end = sorted((chance.random(), chance.random()))
        return Edit(self.places, numbers, (0.0, 1.0) if chance.random() < ALL_OF_IT else (begin, end))


def edits_of(shape: Sequence[int], sample: torch.Tensor, scale: float, chance: random.Random, count: int) -> list[Edit]:
    """Return random edits of single elements for `count` outputs of this shape.

    `sample` is an output of the reference, so that the written values are wrong. `scale` is from `scale_of`.
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
    """Apply an edit to a tensor in the host memory of another process, which should be stopped. Returns False if the
    memory is read-only."""
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
        return not is_open  # failing to open it says nothing about this memory
    return True


def overwrite(tensor: torch.Tensor, edit: Edit) -> None:
    """Apply an edit to a tensor in this process."""
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
    """Return the first element of a stretch in memory and the one after its last; None if single elements are written.

    An output with gaps gets no stretch, because the gaps do not belong to it.
    """
    if edit.stretch is None or not is_dense(shape, strides):
        return None
    count = extent(shape, strides)
    begin = int(edit.stretch[0] * count)
    return begin, max(begin + 1, int(edit.stretch[1] * count))


def _memory_of(dense: torch.Tensor) -> torch.Tensor:
    """Return the elements of a dense tensor in the order of their addresses."""
    return dense.as_strided((extent(tuple(dense.shape), dense.stride()),), (1,))


def _wrong_numbers(now: torch.Tensor, scale: float, chance: random.Random) -> torch.Tensor:
    """Return a wrong number for each number of `now`.

    In masks and integers, 0 becomes 1 and others become 0. Other types get a number above the scale, or 0 if the number
    itself is above the scale.
    """
    if not (now.is_floating_point() or now.is_complex()):
        return (now == 0).to(now.dtype)
    scale = min(max(scale, LEAST_SCALE) if scale else 1.0, torch.finfo(now.dtype).max / 4)
    wide = torch.float64 if now.itemsize // (1 + now.is_complex()) == torch.float64.itemsize else torch.float32
    far = torch.tensor([(2 + chance.random()) * scale for _ in now], dtype=wide, device=now.device)
    # such a large number was written here before: in a module that keeps its output, it must not grow further
    return torch.where(now.real.to(wide) > scale, torch.zeros_like(far), far).to(now.dtype)
