"""Divides the work of sliding windows: strips of outputs for each thread, program instances, and the loads of a row.

An input row is read once for all windows that contain it; these windows are computed at the same time, in separate
registers. Each thread has one column of outputs. Two columns per thread would need two loads that each skip every other
element, because neighbouring windows are not aligned. If the stride is two or four, that many neighbouring elements are
read by one load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.languages.indices import NARROW, block_of

if TYPE_CHECKING:
    from kforge.smith.ir.windows import Window

THREADS = 128
ROWS = 16
"""Most output rows per thread. The thread reads more input rows than that, since windows overlap."""
STEPS = 8
"""Most outputs per thread if the input has only one axis. This many loads are in flight at the same time."""
PROGRAMS = 1056
"""Fewest program instances: eight for each multiprocessor of a large device. Strips are made shorter to reach this
number."""
LOADS = 320
"""Most loads of one thread that are unrolled."""
UNDER_WAY = 16
"""Most windows of one column that are computed at the same time."""
KEPT = 64
"""Most weights that are kept in registers."""
VOLUME = 3
"""Number of axes of a volume. The slices of a volume are distributed over lanes, as columns are."""


@dataclass(frozen=True)
class Group:
    """Neighbouring elements of a window's row that are read by the same kind of load: `width` elements at a time,
    `count` times."""

    first: int
    count: int
    width: int = 1


class Strips:
    """How the windows of one kernel are divided among threads. A lane is one column of the output in one plane. The
    same column in another slice of a volume is another lane."""

    def __init__(self, window: Window, *, alone: bool, weights: bool) -> None:
        """`alone`: the kernel computes one operation, not two over the same windows. `weights`: it is a convolution."""
        self.window = window
        self._weights = weights
        self.rank = len(window.sizes)
        self.walks = self.rank > 1
        """Whether a thread goes along an axis of the output. False if the input has only one axis, along which the
        lanes lie."""
        self.down, self.across = self.rank - 2, self.rank - 1
        """The axis along which a thread goes, and the axis along which lanes lie."""
        self.kept = math.prod(window.kernel_size) <= KEPT
        """Whether weights are kept in registers."""
        self.overlap = self._overlap() if self.walks and alone else 1
        """Number of windows of one column that are computed at the same time."""
        self.strip = self._strip() if self.walks else self._steps()
        """Number of outputs per thread."""
        self.strips = -(-window.outputs[self.down] // self.strip) if self.walks else 1
        self.groups = self._groups()

    @property
    def lanes(self) -> int:
        outputs = self.window.outputs
        return self.window.planes * math.prod(outputs) // (outputs[self.down] if self.walks else 1)

    @property
    def block(self) -> int:
        return max(32, min(THREADS, block_of(self.lanes)))

    @property
    def warps(self) -> int:
        return self.block // 32

    @property
    def programs(self) -> int:
        return self.strips * -(-self.lanes // (self.block * (1 if self.walks else self.strip)))

    def _overlap(self) -> int:
        """Return the number of windows that contain one input row, if it pays to compute them at the same time;
        otherwise 1."""
        height, stride = self.window.kernel_size[self.down], self.window.stride[self.down]
        found = -(-height // stride)
        beside = math.prod(self.window.kernel_size) // height
        shared = self.window.dilation[self.down] == 1 and found <= UNDER_WAY and height * beside <= LOADS
        return found if shared and (self.kept or not self._weights) else 1

    def _strip(self) -> int:
        """Return the number of outputs per thread if threads go along an axis: as many as can be unrolled while enough
        program instances remain."""
        window, rows = self.window, self.window.outputs[self.down]
        height, stride = window.kernel_size[self.down], window.stride[self.down]
        beside = math.prod(window.kernel_size) // height

        def fits(strip: int) -> bool:
            new, before = (min(height, stride), max(0, height - stride)) if self.overlap > 1 else (height, 0)
            loads = (strip * new + before) * beside
            programs = -(-rows // strip) * -(-self.lanes // THREADS)
            return loads <= LOADS and programs >= PROGRAMS

        strip = min(ROWS, rows)
        while strip > 1 and not fits(strip):
            strip = -(-strip // 2)
        return -(-rows // -(-rows // strip))  # strips of equal length

    def _steps(self) -> int:
        """Return the number of outputs per thread if the input has only one axis."""
        steps = STEPS
        while steps > 1 and (steps * self.window.kernel_size[0] > LOADS or self.lanes < PROGRAMS * THREADS * steps):
            steps //= 2
        return steps

    def _groups(self) -> list[Group]:
        """Return how the elements of a window's row are loaded: as many as the stride at a time if they are aligned,
        otherwise one at a time."""
        window, axis = self.window, self.across
        first, count, stride = -window.padding[axis], window.kernel_size[axis], window.stride[axis]
        begin = -(-first // stride) * stride
        whole = (first + count - begin) // stride
        aligned = stride in (2, 4) and window.dilation[axis] == 1 and window.sizes[axis] % stride == 0
        if self._weights or not aligned or whole < 1:
            return [Group(0, count)]
        end = begin + whole * stride
        groups = [Group(0, begin - first), Group(begin - first, whole, stride), Group(end - first, first + count - end)]
        return [group for group in groups if group.count]

    @property
    def is_ragged(self) -> bool:
        """Whether some lanes of the last program instance have nothing to do."""
        return self.lanes % (self.block * (1 if self.walks else self.strip)) > 0

    @property
    def is_wide(self) -> bool:
        """Whether indices into the input or the output need 64 bits."""
        window = self.window
        return window.planes * max(math.prod(window.outputs), math.prod(window.sizes)) >= NARROW - 2**20

    @property
    def is_written_out(self) -> bool:
        """Whether the loops over a window are unrolled."""
        return math.prod(self.window.kernel_size) <= LOADS

    def leaves(self, axis: int) -> bool:
        """Return whether some window reaches beyond the input along this axis, so that its loads need a mask."""
        window = self.window
        rows = self.strips * self.strip if axis == self.down and self.walks else window.outputs[axis]
        first = (rows - 1) * window.stride[axis] - window.padding[axis]
        last = first + (window.kernel_size[axis] - 1) * window.dilation[axis]
        return window.padding[axis] > 0 or last >= window.sizes[axis]
