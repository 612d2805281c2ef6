"""Writes the addresses of a buffer's elements as source text. One index variable may count several loops; divisions
then split it.

Divisors are constants in the text, so a compiler turns divisions into multiplications and can see which elements are
contiguous.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.fusion.loops import Nest

NARROW = 2**31
"""Number of elements that a signed 32-bit index can count."""


@dataclass(frozen=True)
class IndexText:
    """One index variable that counts through several nested loops. `name` is the variable's name."""

    name: str
    loops: tuple[tuple[int, int], ...]
    """For each loop, outermost first: its position among the loops of the nest, and its size."""
    division: str = "//"
    """The language's operator for integer division."""

    @property
    def size(self) -> int:
        return math.prod(size for _, size in self.loops)

    def moves(self, steps: Sequence[int]) -> bool:
        """Return whether the address of a buffer with these strides depends on this index."""
        return any(steps[axis] for axis, _ in self.loops)

    def address(self, steps: Sequence[int]) -> str:
        """Return the expression for this index's part of the offset from the buffer's first element. Empty if the
        buffer's address does not depend on the index."""
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
        """Return the loops in groups of neighbours. For a buffer with these strides, each group acts like one loop with
        one stride."""
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
        """Return the expression that counts only the loops of this group."""
        below = math.prod(size for _, size in self.loops[run[-1] + 1 :])
        own = math.prod(self.loops[position][1] for position in run)
        text = self.name if below == 1 else f"{self.name} {self.division} {below}"
        return text if run[0] == 0 else f"{text} % {own}"


def index_of(name: str, nest: Nest, axes: Sequence[int], division: str = "//") -> IndexText:
    """Return the index variable `name` that counts these loops of a nest."""
    return IndexText(name, tuple((axis, nest.loops[axis].size) for axis in axes), division)


def is_wide(nest: Nest) -> bool:
    """Return whether some address of the nest needs a 64-bit index."""
    sizes = [loop.size for loop in nest.loops]
    reaches = (reach(buffer.steps, sizes, buffer.offset) for buffer in nest.buffers)
    return max([math.prod(sizes), *reaches]) >= NARROW - 2**23  # a margin: the last block may go beyond the end


def reach(steps: Sequence[int], sizes: Sequence[int], offset: int = 0) -> int:
    """Return one more than the largest address, in elements, of loops with these strides and sizes. Negative strides
    count by their absolute value."""
    return sum(abs(step) * (size - 1) for step, size in zip(steps, sizes, strict=True)) + offset + 1


def contiguous_loop(nest: Nest, least: int) -> int | None:
    """Return the loop along which some operand is contiguous although the output is not, or None if there is no such
    operand. Both loops must have at least `least` steps."""
    last = len(nest.loops) - 1
    for buffer in nest.buffers:
        for axis, step in enumerate(buffer.steps[:-1]):
            sizes = nest.loops[axis].size, nest.loops[last].size
            if abs(step) == 1 and abs(buffer.steps[last]) > 1 and min(sizes) >= least:
                return axis
    return None


def block_of(count: int) -> int:
    """Return the smallest power of two that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()


def times(index: str, step: int) -> str:
    """Return the text of a product of an index and a stride. Empty for a stride of zero."""
    return "" if not step else index if step == 1 else f"{index} * {step}"


def summed(*terms: str) -> str:
    """Return the text of a sum of terms. Empty terms are left out."""
    return " + ".join(term for term in terms if term) or "0"
