"""Flushes the data caches of the host's processors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

from kforge.platforms import host

if TYPE_CHECKING:
    import numpy as np


class HostFlush:
    """Evicts earlier data from the caches of all processors that this process may use.

    A core's own caches are shared by all processes on that core. So a process can flush them for another process that
    is stopped, from a thread on each processor.
    """

    def __init__(self, size: int) -> None:
        """`size` is the number of bytes that all processors together read and write."""
        self._size = size

    def run(self) -> None:
        """Read and write the buffer, an equal part on each processor. No thread is left afterwards."""
        import numpy as np

        processors = sorted(host.processors())
        parts = np.array_split(self._buffer, len(processors))
        # threads of Python, which sleep when they are done: threads of OpenMP would go on spinning beside a timed block
        with ThreadPoolExecutor(len(processors)) as threads:
            list(threads.map(_rewrite, processors, parts))

    @cached_property
    def _buffer(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        import numpy as np

        return np.zeros(self._size, dtype=np.uint8)


def _rewrite(processor: int, part: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
    """Read and write a part of the buffer on one processor, in a thread that ends soon."""
    host.pin(0, {processor})
    part += 1  # a plain fill may bypass the caches
