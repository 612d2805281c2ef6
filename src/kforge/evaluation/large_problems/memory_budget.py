"""Decides how much memory an evaluation may use, and whether a problem is judged as a whole or in pieces. (torch)

One eager call holds its inputs and outputs. If at least `WHOLE_CALLS` times that much memory is available, cases are
judged as a whole, which is the fastest. With less memory the evaluation is *lean*: inputs are moved into memory that is
shared with the worker, outputs are read in place, and the right results are computed and compared in pieces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.errors import InputError
from kforge.evaluation.constants import HOST_SHARE, LEAN_CALLS, PIECE_CALLS, PIECE_SHARE, WHOLE_CALLS
from kforge.platforms import host

if TYPE_CHECKING:
    import torch

    from kforge.platforms import Allocation, DeviceMemory

ROUNDED = 1.02
"""Factor by which the needed memory may exceed the user's limit, because users give rounded numbers."""


@dataclass(frozen=True)
class Budget:
    """Bytes that the referee and its workers may use together."""

    limit: int
    is_given: bool
    """Whether the user has set the limit. Otherwise it follows from the free memory."""

    @classmethod
    def of(cls, given: int, memory: DeviceMemory | None) -> Budget:
        """Return the budget. `given` is the user's limit in bytes, or 0 for none.

        Without a limit it is the free memory of the device, or HOST_SHARE of the host's if `memory` is None.
        """
        if given:
            return cls(given, is_given=True)
        if memory is not None:
            return cls(memory.within_reach(), is_given=False)
        return cls(int(HOST_SHARE * host.available_memory()), is_given=False)

    def is_short_for(self, call_bytes: int) -> bool:
        """Return whether a call of this size is too large to be judged as a whole."""
        return WHOLE_CALLS * call_bytes > self.limit

    def pieces_of(self, call_bytes: int) -> int:
        """Return the number of pieces into which a call is cut, so that one piece in double precision is a small part
        of the budget."""
        return math.ceil(PIECE_CALLS * call_bytes / (PIECE_SHARE * self.limit))

    def must_hold(self, name: str, call_bytes: int) -> None:
        """Raise InputError if the user's limit is too small even for a lean evaluation. `name` is the problem's."""
        needed = LEAN_CALLS * call_bytes
        if self.is_given and needed > ROUNDED * self.limit:
            raise InputError(
                f"{name}: the inputs and outputs of a call take {gigabytes(call_bytes)}, and judging it takes up to "
                f"{gigabytes(needed)} of memory; the limit is {gigabytes(self.limit)}: raise --memory or "
                "KFORGE_MEMORY, or make the inputs smaller"
            )


class LimitedMemory:
    """The memory of a device that reports only the free bytes within a limit. All other methods are the device's."""

    def __init__(self, memory: DeviceMemory, limit: int) -> None:
        self._memory = memory
        self._limit = limit
        self._at_first = memory.within_reach()
        self.alignment = memory.alignment

    def allocate(self, size: int) -> torch.Tensor:
        return self._memory.allocate(size)

    def export(self, address: int) -> Allocation:
        return self._memory.export(address)

    def open(self, handle: str) -> torch.Tensor:
        return self._memory.open(handle)

    def free(self) -> int:
        return self._of_the_limit(self._memory.free())

    def within_reach(self) -> int:
        return self._of_the_limit(self._memory.within_reach())

    def trim(self) -> None:
        self._memory.trim()

    def _of_the_limit(self, there: int) -> int:
        """Return the free bytes within the limit, when `there` bytes are free on the device."""
        return max(0, min(there, self._limit - (self._at_first - there)))


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB"
