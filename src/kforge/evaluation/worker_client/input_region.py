"""The shared memory region through which one worker gets its inputs. (torch)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kforge.evaluation.constants import LEAST_CALLS_PER_BLOCK
from kforge.evaluation.transport.shared_memory import bytes_of
from kforge.problems.tensors import same

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.evaluation.transport.shared_memory import SharedRegion
    from kforge.evaluation.worker_client.orders import Orders
    from kforge.evaluation.worker_client.output_access import OutputAccess

SLACK = 1 << 20
"""Extra bytes of a shared region beyond the values for which it is made."""
SHIFTS = 64
"""Number of offsets at which the inputs of a block may begin. On a host they cover one page."""


class InputRegion:
    """Shares values with one worker. The region is replaced by a larger one when it is too small."""

    def __init__(self, orders: Orders, access: OutputAccess) -> None:
        self._orders = orders
        self._access = access
        self._region: SharedRegion | None = None
        self._placed: tuple[list[Any], Any] | None = None
        """The inputs that `place` returned, and their places; None if they were overwritten."""

    def share(self, value: Any) -> Any:
        """Copy a value into the region. Returns the value with a TensorRef for each tensor, as it is sent to the
        worker."""
        return self.room_for(value).pack(value)

    def place(self, arguments: Sequence[Any]) -> list[Any]:
        """Copy the inputs of the next call into the region. Returns views of the region."""
        shared = self.share(list(arguments))
        views: list[Any] = self.now(shared)
        self._placed = (views, shared)
        return views

    def places_of(self, arguments: Sequence[Any]) -> Any:
        """Return the places of arguments that are the result of the last `place`; None for other arguments."""
        return self._placed[1] if self._placed is not None and arguments is self._placed[0] else None

    def room_for(self, value: Any) -> SharedRegion:
        """Return the region, emptied, and large enough for this value at any of the offsets."""
        alignment = self._access.alignment
        needed = bytes_of(value, alignment) + SHIFTS * alignment
        if self._region is None or self._region.size < needed:
            self._region = self._placed = None  # freed first: there may not be room for both
            self._access.detach_inputs()
            # for a whole block at once where that is allowed: mapping gigabytes again takes 70 ms
            block = LEAST_CALLS_PER_BLOCK * needed
            self._region = self._access.region((block if block <= self._access.input_bytes else needed) + SLACK)
            self._access.attach_inputs(self._region, self._orders.attach("inputs", self._region))
        self._region.reset()
        self._placed = None
        return self._region

    def show(self, shared: Any, arguments: Sequence[Any]) -> None:
        """Write the inputs of one call to their places, while the worker is stopped."""
        assert self._region is not None
        self._access.show(self._region, shared, list(arguments))

    def now(self, shared: Any) -> Any:
        """Return the values at these places as they are now."""
        assert self._region is not None
        return self._region.unpack(shared, self._access.device)

    def are_intact(self, shared: Any, arguments: Sequence[Any]) -> bool:
        """Return whether the values at these places still equal `arguments`."""
        return same(self.now(shared), list(arguments))
