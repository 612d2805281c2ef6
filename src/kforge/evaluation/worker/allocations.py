"""Lists the device allocations in which a worker's outputs lie, for the referee to open. (torch)"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

import torch

from kforge.errors import PlatformError
from kforge.problems.tensors import tensors_in

if TYPE_CHECKING:
    from kforge.platforms import Allocation, DeviceMemory


class ShownAllocations:
    """Handles of allocations, in the form that the referee's `DeviceAccess.learn` takes.

    Asking the driver takes 45 µs for every output, inside a timed block. So known allocations are not asked for again,
    and whether they are still valid is checked before the next block.
    """

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._known: list[Allocation] = []
        self._told: dict[int, str] = {}

    def refresh(self) -> None:
        """Forget allocations that have been freed."""
        self._known = [one for one in self._known if self._asked(one.base) == one]

    def forget(self) -> None:
        """Forget all of them, as `DeviceAccess.forget` does."""
        self._known, self._told = [], {}

    def shows(self, tensor: torch.Tensor) -> bool:
        """Return whether another process can read it where it lies: managed or pooled memory cannot be shown."""
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            return False
        return not tensor.numel() or self._holding(tensor.data_ptr()) is not None

    def holding(self, outputs: Any) -> list[tuple[int, str]]:
        """Return the allocations; none where all were sent the last time, because reading a list of handles is timed as
        well."""
        found: dict[int, str] = {}
        for tensor in tensors_in(outputs):
            one = self._holding(tensor.data_ptr()) if tensor.numel() else None
            if one is not None:  # otherwise the referee reports that it sees nothing
                found[one.base] = one.handle
        if found.items() <= self._told.items():
            return []
        self._told = found
        return list(found.items())

    def _holding(self, address: int) -> Allocation | None:
        at = bisect.bisect_right(self._known, address, key=lambda one: one.base)
        if at and address < self._known[at - 1].base + self._known[at - 1].size:
            return self._known[at - 1]
        asked = self._asked(address)
        if asked is not None:
            self._known.insert(at, asked)
        return asked

    def _asked(self, address: int) -> Allocation | None:
        try:
            return self._memory.export(address)
        except PlatformError:
            return None
