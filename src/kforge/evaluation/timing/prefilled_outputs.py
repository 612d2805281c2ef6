"""Detects memory for outputs that was filled before the clock started. (torch)

Much of an output may be known before its inputs: zeros, padding, a constant. A program could fill memory for hundreds
of outputs while it is verified, and return it when it is timed. A user who calls it again and again would use up this
stock. Each output of a stock has separate memory, while an allocator gives out the same memory again, so the addresses
of the two sides' outputs show it.
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
"""Outputs may lie in as much memory as the baseline's, and this many outputs and this many bytes more: allocators
differ. Filling less than that in advance is worth little in a race with twice as many calls."""


class OutputMemory:
    """All memory in which the outputs of one side have lain."""

    def __init__(self) -> None:
        self._spans: dict[_Layout, list[tuple[int, int]]] = {}
        self.largest = 0
        """Most bytes that the outputs of one call span."""

    def add(self, calls: list[Tree]) -> None:
        """Note where the outputs of some calls lie."""
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
        """Its bytes, without the gaps between the elements of an output."""
        everything = _bytes(joined(itertools.chain(*self._spans.values())))
        return min(everything, int(sum(layout.share * _bytes(spans) for layout, spans in self._spans.items())))


class _Layout(NamedTuple):
    """The memory layout of an output. Outputs of one layout whose memory overlaps share elements."""

    share: float = 1.0
    """Share of the bytes from the first to the last element that belong to elements."""
    strides: tuple[int, ...] = ()
    phase: int = 0
    """Position of its first element modulo the largest stride."""


def _layout(ref: TensorRef) -> _Layout:
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
    """Return the bytes in which a candidate's outputs may lie."""
    return baseline.size + OUTPUTS * baseline.largest + LEAST


def stocked(baseline: OutputMemory, candidate: OutputMemory) -> int:
    """The bytes in which the candidate's outputs have lain, where they are more than an allocator would use; else 0."""
    return candidate.size if candidate.size > allowed(baseline) else 0


def could_last(held: int, seen: int, baseline: OutputMemory) -> bool:
    """Return whether prefilled outputs could have served most calls so far without being detected by `stocked`.

    `held`: bytes that the candidate held beyond the baseline when the race began. `seen`: bytes of its outputs so far.
    """
    return held > max(LEAST, seen / 2) and seen < 2 * allowed(baseline)


def memory_held(pid: int) -> int:
    """Return the bytes of anonymous and shared memory that a process holds; 0 where the kernel does not report them."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    fields = (line.split() for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
    return sum(int(kilobytes) << 10 for _, kilobytes, *_ in fields)
