"""Memory for outputs that was filled before the clock started. (torch)

Much of an output may be known before its inputs: zeros, padding, a constant. A program could fill memory for hundreds
of outputs while it is verified, and hand it out when it is timed. A user who calls it again and again would see that
stock run out. Each output of a stock lies in memory of its own, while an allocator gives the same memory out again, so
the two sides' outputs show it by where they lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kforge.evaluation.transport.aliases import span, tensor_leaves
from kforge.evaluation.transport.overlaps import joined

if TYPE_CHECKING:
    from kforge.evaluation.transport.wire import Tree

OUTPUTS, LEAST = 8, 32 << 20
"""Outputs may lie in as much memory as the baseline's, and this many outputs and this many bytes more: allocators
differ. Filling less than that in advance is worth little in a race with twice as many calls."""


class OutputMemory:
    """All memory that the outputs of one side have lain in."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self.largest = 0
        """Bytes that the outputs of a call span, at most."""

    def add(self, calls: list[Tree]) -> None:
        """Note where the outputs of some calls lie."""
        spans = [[span(ref) for ref in tensor_leaves(outputs) if ref.offset >= 0] for outputs in calls]
        self.largest = max(self.largest, *(sum(end - begin for begin, end in each) for each in spans), 0)
        self._spans = joined([*self._spans, *(one for each in spans for one in each)])

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(end - begin for begin, end in self._spans)


def allowed(baseline: OutputMemory) -> int:
    """Bytes that a candidate's outputs may lie in."""
    return baseline.size + OUTPUTS * baseline.largest + LEAST


def stocked(baseline: OutputMemory, candidate: OutputMemory) -> int:
    """Bytes that the candidate's outputs have lain in, where they are too many to be an allocator's; else 0."""
    return candidate.size if candidate.size > allowed(baseline) else 0


def could_last(held: int, seen: int, baseline: OutputMemory) -> bool:
    """Whether a stock of outputs could have served most calls so far without being seen by `stocked`.

    `held`: bytes that the candidate held beyond the baseline when the race began. `seen`: bytes of its outputs so far.
    """
    return held > max(LEAST, seen / 2) and seen < 2 * allowed(baseline)


def memory_held(pid: int) -> int:
    """Bytes of anonymous and shared memory that a process holds; 0 where the kernel does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    fields = (line.split() for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
    return sum(int(kilobytes) << 10 for _, kilobytes, *_ in fields)
