"""Lists the device allocations that contain a worker's outputs, so that the referee can open them. (torch)"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

import torch

from kforge.errors import PlatformError
from kforge.problems.tensors import tensors_in

if TYPE_CHECKING:
    from kforge.platforms import Allocation, DeviceMemory


class ShownAllocations:
    """The device allocations that this worker has told the referee about, with their handles (`DeviceAccess.learn`).

    Asking the driver for a handle takes 45 µs for each output, in a timed block. So known allocations are not asked for
    again; `refresh` checks before each block that they still exist.
    """

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._known: list[Allocation] = []
        self._told: dict[int, str] = {}

    def refresh(self) -> None:
        """Remove allocations from the list that were freed meanwhile."""
        self._known = [one for one in self._known if self._asked(one.base) == one]

    def forget(self) -> None:
        """Remove all allocations, as the referee does by `DeviceAccess.forget`."""
        self._known, self._told = [], {}

    def shows(self, tensor: torch.Tensor) -> bool:
        """Return whether another process can read this tensor in place. Managed and pooled memory cannot be shared."""
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            return False
        return not tensor.numel() or self._holding(tensor.data_ptr()) is not None

    def holding(self, outputs: Any) -> list[tuple[int, str]]:
        """Return address and handle of the allocations that contain these outputs.

        Returns an empty list if all of them were sent before: reading handles takes time in a timed block.
        """
        found: dict[int, str] = {}
        for tensor in tensors_in(outputs):
            one = self._holding(tensor.data_ptr()) if tensor.numel() else None
            if one is not None:  # otherwise the referee reports that it cannot see this output
                found[one.base] = one.handle
        if found.items() <= self._told.items():
            return []
        self._told = found
        return list(found.items())

    def _holding(self, address: int) -> Allocation | None:
        """Return the allocation that contains an address; None if it cannot be shared."""
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
