"""How much memory the processes of an evaluation may use together, and what follows from that. (torch)

One eager call holds its inputs and its outputs. Where at least `WHOLE_CALLS` times as much is there, everything is kept
as a whole, which is quickest. Where less is there, the evaluation is *lean*: inputs are moved into the memory that the
worker shares, outputs are read where they lie, and the truth is computed and compared in pieces.
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
"""Factor by which the needed memory may exceed the user's limit, which is usually a rounded number."""


@dataclass(frozen=True)
class Budget:
    """Bytes that referee and workers may use together."""

    limit: int
    is_given: bool
    """Whether the user has set the limit; otherwise it is the free memory."""

    @classmethod
    def of(cls, given: int, memory: DeviceMemory | None) -> Budget:
        """Return the budget. `given`: what the user allows, or 0."""
        if given:
            return cls(given, is_given=True)
        if memory is not None:
            return cls(memory.within_reach(), is_given=False)
        return cls(int(HOST_SHARE * host.available_memory()), is_given=False)

    def is_short_for(self, call_bytes: int) -> bool:
        """Whether a call of this size is too large to be judged as a whole, and must be judged in pieces."""
        return WHOLE_CALLS * call_bytes > self.limit

    def pieces_of(self, call_bytes: int) -> int:
        """Return into how many pieces a call is cut, so that one of them in double precision is a small part of the
        budget."""
        return math.ceil(PIECE_CALLS * call_bytes / (PIECE_SHARE * self.limit))

    def must_hold(self, name: str, call_bytes: int) -> None:
        """Raises InputError where the user allows less than even a lean evaluation needs."""
        needed = LEAN_CALLS * call_bytes
        if self.is_given and needed > ROUNDED * self.limit:
            raise InputError(
                f"{name}: a call holds {gigabytes(call_bytes)}, and judging it takes up to {gigabytes(needed)}; "
                f"the limit is {gigabytes(self.limit)}: raise --memory or KFORGE_MEMORY, or make the inputs smaller"
            )


class LimitedMemory:
    """A device's memory of which the evaluation may use only a part: as if the rest did not exist."""

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
        """Return what is left of the limit after what was used since the beginning, but no more than is free."""
        return max(0, min(there, self._limit - (self._at_first - there)))


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB"
