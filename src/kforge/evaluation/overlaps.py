"""Elements of outputs that lie in one place of memory. (torch)

An output of its own can be written to without changing another one. A program that returns one row many times by a
stride of zero, or the same memory for two calls, returns less than the reference does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from kforge.evaluation.aliases import span, tensor_leaves
from kforge.evaluation.memory import extent

if TYPE_CHECKING:
    from kforge.evaluation.wire import TensorRef, Tree

MOST_MARKED = 1 << 28
"""Elements of a stretch of memory in which each element is looked at; in larger ones strides alone decide."""


Overlaps = frozenset[tuple[str, int, int]]
"""What lies in one place: how, and the numbers of two outputs of a call (or of one, twice)."""
ITSELF, ONE_CALL, TWO_CALLS = "elements of one output", "two outputs of a call", "outputs of two calls"


def overlapping(calls: list[Tree]) -> Overlaps:
    """What lies in one place, given where the outputs of several calls lie."""
    placed = [
        (call, number, ref)
        for call, outputs in enumerate(calls)
        for number, ref in enumerate(tensor_leaves(outputs))
        if ref.offset >= 0 and extent(ref.shape, ref.strides)
    ]
    found = {(ITSELF, number, number) for _, number, ref in placed if overlaps_itself(ref)}
    placed.sort(key=lambda one: one[2].offset)
    end = -1
    group: list[tuple[int, int, TensorRef]] = []
    for call, number, ref in placed:
        begin, last = span(ref)
        if begin >= end:
            group = []
        for other, earlier, there in group:
            what = (ONE_CALL if call == other else TWO_CALLS, min(number, earlier), max(number, earlier))
            if what not in found and share_elements(there, ref):
                found.add(what)
        group.append((call, number, ref))
        end = max(end, last)
    return frozenset(found)


def overlaps_itself(ref: TensorRef) -> bool:
    """Whether two elements of a tensor lie in one place, by its strides alone."""
    steps = sorted((stride, size) for size, stride in zip(ref.shape, ref.strides, strict=True) if size > 1)
    reached = 0
    for stride, size in steps:
        if stride <= reached:
            return _counts_twice(ref)
        reached += stride * (size - 1)
    return False


def share_elements(one: TensorRef, other: TensorRef) -> bool:
    """Whether an element of one tensor lies where one of another does; their stretches of memory may only cross."""
    if one == other:
        return True
    (begin, end), (first, last) = span(one), span(other)
    if max(begin, first) >= min(end, last):
        return False
    itemsize: int = getattr(torch, one.dtype).itemsize
    start, stop = min(begin, first), max(end, last)
    offsets = (begin - start, first - start)
    if one.dtype != other.dtype or any(offset % itemsize for offset in offsets):
        return True  # tensors of two kinds in one stretch of memory: nobody returns that in good faith
    if (stop - start) // itemsize > MOST_MARKED:
        return (one.shape, one.strides) != (other.shape, other.strides) or one.offset == other.offset
    marks = torch.zeros((stop - start) // itemsize, dtype=torch.bool)
    marks[offsets[0] // itemsize :].as_strided(one.shape, one.strides).fill_(True)
    found: bool = bool(marks[offsets[1] // itemsize :].as_strided(other.shape, other.strides).any())
    return found


def _counts_twice(ref: TensorRef) -> bool:
    """Where strides interleave, count the places."""
    places = extent(ref.shape, ref.strides)
    repeats = any(size > 1 and stride == 0 for size, stride in zip(ref.shape, ref.strides, strict=True))
    if repeats or places > MOST_MARKED:
        return True
    marks = torch.zeros(places, dtype=torch.bool)
    marks.as_strided(ref.shape, ref.strides).fill_(True)
    return int(marks.sum()) < math.prod(ref.shape)
