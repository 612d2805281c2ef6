"""Finds output elements that share a memory address. (torch)

A caller must be able to write to one output without changing another. A program that returns one row many times by a
stride of zero, or the same memory for two calls, returns less memory than the reference does.
"""

from __future__ import annotations

import bisect
import itertools
import math
from typing import TYPE_CHECKING

import torch

from kforge.evaluation.transport.aliases import span, tensor_leaves
from kforge.evaluation.transport.shared_memory import extent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kforge.evaluation.transport.aliases import Mapping
    from kforge.evaluation.transport.wire import TensorRef, Tree

MOST_MARKED = 1 << 28
"""Most elements of a stretch of memory in which each element is examined. In larger stretches only strides are
compared."""
MOST_LOOKS = 512
"""Most examinations of interleaved outputs, if each is short; a longer one counts as several. No honest program needs
more. After that, outputs are assumed to share addresses."""

Overlaps = frozenset[tuple[str, int, int]]
"""Pairs of outputs that share an address: the kind (ITSELF, ONE_CALL or TWO_CALLS) and the two output numbers."""
ITSELF, ONE_CALL, TWO_CALLS = "elements of one output", "two outputs of a call", "outputs of two calls"


def overlapping(calls: list[Tree]) -> Overlaps:
    """Return which outputs share addresses. `calls` has the places of the outputs of several calls."""
    placed = [
        (call, number, ref)
        for call, outputs in enumerate(calls)
        for number, ref in enumerate(tensor_leaves(outputs))
        if ref.offset >= 0 and extent(ref.shape, ref.strides)
    ]
    looks = _Looks()
    found = {(ITSELF, number, number) for _, number, ref in placed if overlaps_itself(ref, looks)}
    placed.sort(key=lambda one: one[2].offset)
    end = -1
    group: list[tuple[int, int, TensorRef]] = []
    for call, number, ref in placed:
        begin, last = span(ref)
        if begin >= end:
            group = []
        for other, earlier, there in group:
            what = (ONE_CALL if call == other else TWO_CALLS, min(number, earlier), max(number, earlier))
            if what not in found and share_elements(there, ref, looks):
                found.add(what)
        group.append((call, number, ref))
        end = max(end, last)
    return frozenset(found)


def mapped_twice(calls: list[Tree], mappings: list[Mapping]) -> bool:
    """Return whether outputs at different addresses are the same memory, because a file is mapped twice."""
    spans = joined(span(ref) for outputs in calls for ref in tensor_leaves(outputs) if ref.offset >= 0)
    pieces = []
    for mapping in mappings:
        first = bisect.bisect_right(spans, mapping.begin, key=lambda one: one[1])
        last = bisect.bisect_left(spans, mapping.end, key=lambda one: one[0])
        at = mapping.offset - mapping.begin
        for begin, end in spans[first:last]:
            pieces.append((mapping.file, max(begin, mapping.begin) + at, min(end, mapping.end) + at))
    pieces.sort()
    # addresses differ, so two overlapping pieces of a file are memory that is mapped twice
    return any(one[0] == other[0] and other[1] < one[2] for one, other in itertools.pairwise(pieces))


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return stretches of memory in order, with those merged that touch or overlap."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(one for one in spans if one[0] < one[1]):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


class _Looks:
    """A budget that limits how many elements are examined."""

    def __init__(self) -> None:
        self._left = 2 * MOST_MARKED

    def has_room_for(self, places: int) -> bool:
        """Subtract this number of elements from the budget. Returns whether the budget suffices."""
        self._left -= min(max(places, 2 * MOST_MARKED // MOST_LOOKS), MOST_MARKED)
        return self._left >= 0


def overlaps_itself(ref: TensorRef, looks: _Looks | None = None) -> bool:
    """Return whether two elements of one tensor share an address."""
    steps = sorted((stride, size) for size, stride in zip(ref.shape, ref.strides, strict=True) if size > 1)
    reached = 0
    for stride, size in steps:
        if stride <= reached:
            return _counts_twice(ref, looks or _Looks())
        reached += stride * (size - 1)
    return False


def share_elements(one: TensorRef, other: TensorRef, looks: _Looks | None = None) -> bool:
    """Return whether an element of one tensor has the same address as an element of another.

    The address ranges of two tensors may overlap although they share no element.
    """
    if one == other:
        return True
    (begin, end), (first, last) = span(one), span(other)
    if max(begin, first) >= min(end, last):
        return False
    itemsize: int = getattr(torch, one.dtype).itemsize
    start, stop = min(begin, first), max(end, last)
    offsets = (begin - start, first - start)
    if one.dtype != other.dtype or any(offset % itemsize for offset in offsets):
        return True  # tensors of two kinds in one stretch of memory: no honest program returns that
    places = (stop - start) // itemsize
    if not (looks or _Looks()).has_room_for(places):
        return True
    if places > MOST_MARKED:
        return (one.shape, one.strides) != (other.shape, other.strides) or one.offset == other.offset
    marks = torch.zeros((stop - start) // itemsize, dtype=torch.bool)
    marks[offsets[0] // itemsize :].as_strided(one.shape, one.strides).fill_(True)
    found: bool = bool(marks[offsets[1] // itemsize :].as_strided(other.shape, other.strides).any())
    return found


def _counts_twice(ref: TensorRef, looks: _Looks) -> bool:
    """Return whether a tensor with interleaved strides has fewer addresses than elements.

    Returns True as well for a tensor that is too large to mark its addresses: no honest program makes one.
    """
    places = extent(ref.shape, ref.strides)
    repeats = any(size > 1 and stride == 0 for size, stride in zip(ref.shape, ref.strides, strict=True))
    if repeats or places > MOST_MARKED or not looks.has_room_for(places):
        return True
    marks = torch.zeros(places, dtype=torch.bool)
    marks.as_strided(ref.shape, ref.strides).fill_(True)
    return int(marks.sum()) < math.prod(ref.shape)
