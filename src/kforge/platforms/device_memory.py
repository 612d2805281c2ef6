"""Memory of a device that two processes share: what an adapter offers where its driver can do that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Allocation:
    """A piece of this process's device memory, as another process can open it."""

    base: int
    size: int
    handle: str


class DeviceMemory(Protocol):
    """Allocations that cross between processes by a handle, which is text.

    All of it raises PlatformError when the driver says no, as it does for a handle that somebody made up.
    """

    alignment: int
    """Tensors begin at multiples of this, as those of torch's own allocator do."""

    def allocate(self, size: int) -> torch.Tensor:
        """Bytes that are an allocation of their own; freed with the tensor."""

    def export(self, address: int) -> Allocation:
        """The allocation that this address lies in."""

    def open(self, handle: str) -> torch.Tensor:
        """All bytes of another process's allocation; let go with the tensor."""

    def free(self) -> int:
        """Bytes of the device that no process holds."""

    def within_reach(self) -> int:
        """Those, and what torch keeps for later in this process."""

    def trim(self) -> None:
        """Give what torch keeps for later in this process back to the device, where another process needs it now."""
