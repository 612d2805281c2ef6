"""Detects output memory that a program has filled before the clock started. (torch)

Much of an output may be known before its inputs are: zeros, padding, a constant. A program could fill memory for
hundreds of outputs while it is verified, and return them when it is timed; a user would soon use them up. Each of these
outputs has its own memory, while an allocator hands out the same memory again. So the total memory in which outputs lay
shows it.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from kforge.evaluation.transport.aliases import span, tensor_leaves
from kforge.evaluation.transport.overlaps import joined
from kforge.evaluation.transport.shared_memory import is_dense

if TYPE_CHECKING:
    from kforge.evaluation.transport.wire import TensorRef, Tree

OUTPUTS, LEAST = 8, 32 << 20
"""A candidate's outputs may lie in as much memory as the baseline's, plus the size of OUTPUTS calls, plus LEAST bytes,
because allocators differ. Filling less than that in advance gains little in a race with twice as many calls."""


class OutputMemory:
    """The memory in which all outputs of one side have lain so far."""

    def __init__(self) -> None:
        self._spans: dict[_Layout, list[tuple[int, int]]] = {}
        self.largest = 0
        """Most bytes from the first to the last byte of the outputs of one call."""

    def add(self, calls: list[Tree]) -> None:
        """Add the memory of the outputs of some calls."""
        refs = [[ref for ref in tensor_leaves(outputs) if ref.offset >= 0] for outputs in calls]
        spans = [[span(ref) for ref in each] for each in refs]
        self.largest = max(self.largest, *(sum(end - begin for begin, end in each) for each in spans), 0)
        found: dict[_Layout, list[tuple[int, int]]] = {}
        for ref, one in zip(itertools.chain(*refs), itertools.chain(*spans), strict=True):
            found.setdefault(_layout(ref), []).append(one)
        for layout, new in found.items():
            self._spans[layout] = joined([*self._spans.get(layout, []), *new])

    @property
    def size(self) -> int:
        """Bytes of the memory in which outputs of this side lay so far, without the gaps between their elements."""
        everything = _bytes(joined(itertools.chain(*self._spans.values())))
        return min(everything, int(sum(layout.share * _bytes(spans) for layout, spans in self._spans.items())))


class _Layout(NamedTuple):
    """The memory layout of an output. Outputs of the same layout whose ranges overlap share elements."""

    share: float = 1.0
    """Share of the bytes from the first to the last element that belong to elements; the others are gaps."""
    strides: tuple[int, ...] = ()
    phase: int = 0
    """Position of the first element modulo the largest stride."""


def _layout(ref: TensorRef) -> _Layout:
    """Return the layout of an output; the default one if it has no gaps, or if its strides interleave."""
    if is_dense(ref.shape, ref.strides):
        return _Layout()
    steps = sorted((stride, size) for stride, size in zip(ref.strides, ref.shape, strict=True) if size > 1)
    reached = 0
    for stride, size in steps:
        if stride <= reached:  # overlapping steps: which elements two outputs share is not computed
            return _Layout()
        reached += stride * (size - 1)
    strides, sizes = zip(*steps, strict=True)
    phase = ref.offset % (strides[-1] * getattr(torch, ref.dtype).itemsize)
    return _Layout(math.prod(sizes) / (reached + 1), strides, phase)


def _bytes(spans: list[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in spans)


def allowed(baseline: OutputMemory) -> int:
    """Return the bytes in which a candidate's outputs may lie, given the baseline's memory."""
    return baseline.size + OUTPUTS * baseline.largest + LEAST


def stocked(baseline: OutputMemory, candidate: OutputMemory) -> int:
    """Return the bytes in which the candidate's outputs have lain, if they are more than allowed; otherwise 0."""
    return candidate.size if candidate.size > allowed(baseline) else 0


def could_last(held: int, seen: int, baseline: OutputMemory) -> bool:
    """Return whether prefilled outputs could have served most calls so far without being noticed by `stocked`.

    `held` is how many bytes the candidate held beyond the baseline when the race began. `seen` is the bytes of all
    outputs that it has returned so far. `baseline` is the memory of the baseline's outputs, with which `stocked`
    compares.
    """
    return held > max(LEAST, seen / 2) and seen < 2 * allowed(baseline)


def memory_held(pid: int) -> int:
    """Return the bytes of anonymous and shared memory that a process holds; 0 if the kernel does not report them."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    fields = (line.split() for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
    return sum(int(kilobytes) << 10 for _, kilobytes, *_ in fields)
