"""Computes addresses of a buffer's elements. One index counts several loops, and is split by division where necessary.

Divisors are written as constants: a compiler turns them into multiplications, and sees which elements are contiguous.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.fusion.loops import Nest

NARROW = 2**31
"""Number of elements that an index of 32 bits can count."""


@dataclass(frozen=True)
class IndexText:
    """Loops that one index counts in order; `name` is the index's name."""

    name: str
    loops: tuple[tuple[int, int], ...]
    """Each loop's position among those of the nest, and its size."""
    division: str = "//"
    """The language's operator for whole division."""

    @property
    def size(self) -> int:
        return math.prod(size for _, size in self.loops)

    def moves(self, steps: Sequence[int]) -> bool:
        """Return whether the address of a buffer with these steps depends on this index."""
        return any(steps[axis] for axis, _ in self.loops)

    def address(self, steps: Sequence[int]) -> str:
        """Return the offset from the buffer's first element; empty where it does not depend on this index."""
        terms = []
        for run in self._runs(steps):
            axis, _ = self.loops[run[-1]]
            if not steps[axis]:
                continue
            count = self._count(run)
            if steps[axis] == 1:
                terms.append(count)
            else:
                terms.append(f"{count} * {steps[axis]}" if count == self.name else f"({count}) * {steps[axis]}")
        return " + ".join(terms)

    def _runs(self, steps: Sequence[int]) -> list[list[int]]:
        """Return groups of neighbouring loops that this buffer walks as one."""
        runs: list[list[int]] = []
        for position, (axis, _) in enumerate(self.loops):
            if runs:
                before = self.loops[runs[-1][-1]][0]
                if steps[before] == steps[axis] * self.loops[position][1]:
                    runs[-1].append(position)
                    continue
            runs.append([position])
        return runs

    def _count(self, run: list[int]) -> str:
        """Return the expression that counts these loops alone."""
        below = math.prod(size for _, size in self.loops[run[-1] + 1 :])
        own = math.prod(self.loops[position][1] for position in run)
        text = self.name if below == 1 else f"{self.name} {self.division} {below}"
        return text if run[0] == 0 else f"{text} % {own}"


def index_of(name: str, nest: Nest, axes: Sequence[int], division: str = "//") -> IndexText:
    return IndexText(name, tuple((axis, nest.loops[axis].size) for axis in axes), division)


def is_wide(nest: Nest) -> bool:
    """Return whether an address needs 64 bits."""
    sizes = [loop.size for loop in nest.loops]
    reaches = (reach(buffer.steps, sizes, buffer.offset) for buffer in nest.buffers)
    return max([math.prod(sizes), *reaches]) >= NARROW - 2**23  # a loop may count beyond the end


def reach(steps: Sequence[int], sizes: Sequence[int], offset: int = 0) -> int:
    """Return an upper bound of every term of an address, for steps in either direction."""
    return sum(abs(step) * (size - 1) for step, size in zip(steps, sizes, strict=True)) + offset + 1


def block_of(count: int) -> int:
    """Return the smallest power of two that is not smaller."""
    return 1 << max(0, count - 1).bit_length()


def times(index: str, step: int) -> str:
    return "" if not step else index if step == 1 else f"{index} * {step}"


def summed(*terms: str) -> str:
    return " + ".join(term for term in terms if term) or "0"
