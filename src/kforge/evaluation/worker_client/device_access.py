"""How the referee accesses the memory of a worker on a device: by handles of its allocations. (torch)

Each timed order ends when the device is idle (`device_idleness.py`), so outputs are read from an idle device.
"""

from __future__ import annotations

import bisect
import secrets
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ChannelError, EvaluationError, PlatformError
from kforge.evaluation.constants import (
    DECOY_BYTES,
    DEVICE_BLOCK_SECONDS,
    DEVICE_INPUT_SHARE,
    DEVICE_SETTLING_CALLS,
    MAX_DEVICE_CALLS,
    MOST_DECOYS,
)
from kforge.evaluation.transport.aliases import Mapping
from kforge.evaluation.transport.shared_memory import SharedRegion, bytes_of, tensor_at
from kforge.evaluation.worker_client.device_idleness import DeviceIdleness
from kforge.evaluation.worker_client.output_access import NotShownError, OutputAccess
from kforge.evaluation.worker_client.overwriting import overwrite

if TYPE_CHECKING:
    from kforge.evaluation.transport.wire import TensorRef, Tree
    from kforge.evaluation.worker_client.output_access import Finish
    from kforge.evaluation.worker_client.overwriting import Edit
    from kforge.platforms import Adapter, DeviceMemory

MAX_ALLOCATIONS = 4096
"""Most device allocations that a worker may list for its outputs."""
NOT_SHOWN = (
    "an output of a timed call lies in device memory that other processes cannot open, so it cannot be checked: return "
    "outputs in memory of torch's default allocator, without expandable segments or a stream-ordered memory pool"
)
"""Reason of a rejection, as users read it."""


class DeviceAccess(OutputAccess):
    """Access to the memory of one worker whose inputs and outputs are on a device."""

    sees = True
    shown = True
    calls = MAX_DEVICE_CALLS
    block_seconds = DEVICE_BLOCK_SECONDS
    settling_calls = DEVICE_SETTLING_CALLS
    settle_seconds = 0.0
    spins = True
    device_clock = True

    def __init__(self, adapter: Adapter, memory: DeviceMemory) -> None:
        super().__init__(adapter.device())
        self.input_bytes = int(DEVICE_INPUT_SHARE * memory.within_reach())
        self._adapter = adapter
        self._memory = memory
        self._opened: dict[str, torch.Tensor] = {}
        self._allocations: list[tuple[int, torch.Tensor]] = []
        self._inputs: tuple[int, torch.Tensor] | None = None
        self._idleness = DeviceIdleness(adapter)

    def region(self, size: int) -> SharedRegion:
        """Return a new shared region on the device. Raises EvaluationError if there is no memory, perhaps because of
        the program."""
        try:
            return SharedRegion.on_device(self._memory, size)
        except PlatformError as error:
            raise EvaluationError(
                f"the device has less than {size / 1e9:.1f} GB free for inputs: {error}; end other processes on it, or "
                "use smaller inputs, unless the program itself takes the memory"
            ) from None

    @property
    def alignment(self) -> int:
        return self._memory.alignment

    def attach_inputs(self, region: SharedRegion, address: int) -> None:
        self._inputs = (address, region.flat)

    def detach_inputs(self) -> None:
        self._inputs = None

    def inputs_in(self, pid: int) -> list[Mapping]:  # noqa: ARG002
        """Return where the worker says it has mapped the region for inputs. A false address gains nothing: outputs of
        the program at that address would count as inputs."""
        if self._inputs is None:
            return []
        address, flat = self._inputs
        return [Mapping(address, address + flat.numel(), 0)]

    def show(self, region: SharedRegion, tree: Tree, values: Any) -> None:
        """Write the input values, after a random number of decoys (wrong values).

        A kernel that was launched early, and waits on the device until its inputs change, starts with a decoy. Large
        values get no decoys: such a kernel would run so long that it is noticed before the clock starts.
        """
        if bytes_of(values) <= DECOY_BYTES:
            turned = pytree.tree_map(_turned, values)
            for number in range(secrets.randbelow(MOST_DECOYS) + 1):
                region.fill(tree, turned if number % 2 == 0 else values)
                self._adapter.synchronize()
            region.fill(tree, turned)
            self._adapter.synchronize()
        region.fill(tree, values)

    def show_block(self, region: SharedRegion, tree: Tree, values: Any) -> None:
        # flushed last: timed calls must not find in the device's caches what this process has just written
        self.show(region, tree, values)
        self._adapter.flush()

    def forget(self) -> None:
        self._allocations, self._opened = [], {}

    def learn(self, allocations: Tree) -> None:
        if not isinstance(allocations, list) or len(allocations) > MAX_ALLOCATIONS:
            raise ChannelError("the worker's report of its device memory is not a list of allocations")
        if not allocations:  # the allocations have not changed since the last list
            return
        found = {}
        for entry in allocations:
            match entry:
                case (int() as base, str() as handle):
                    found[base] = self._open(handle)
                case _:
                    raise ChannelError("the worker's report of its device memory is not a list of allocations")
        # compared by the addresses at which they are opened, since one handle can be spelled in several ways
        if len({flat.data_ptr() for flat in found.values()}) < len(found):
            raise ChannelError("the worker reports one allocation of device memory at several addresses")
        self._allocations = sorted(found.items(), key=lambda pair: pair[0])
        self._opened = {handle: flat for handle, flat in self._opened.items() if any(flat is x for x in found.values())}

    def read(self, pid: int, ref: TensorRef, limit: int) -> torch.Tensor:  # noqa: ARG002 - by handles
        if 0 in ref.shape:  # an empty tensor has no memory
            return torch.empty(ref.shape, dtype=getattr(torch, ref.dtype), device=self.device)
        for mapping in self.inputs_in(pid):  # a worker cannot share this region by a handle of its own
            if mapping.begin <= ref.offset < mapping.end and self._inputs is not None:
                return tensor_at(self._inputs[1], ref, ref.offset - mapping.begin)
        at = bisect.bisect_right(self._allocations, ref.offset, key=lambda pair: pair[0]) - 1
        base, flat = self._allocations[at] if at >= 0 else (0, None)
        if flat is None or ref.offset - base >= flat.numel():
            raise NotShownError(NOT_SHOWN)
        return tensor_at(flat, ref, ref.offset - base)

    def overwrite(self, pid: int, ref: TensorRef, edit: Edit) -> bool:
        overwrite(self.read(pid, ref, 0), edit)
        return True

    def make_room(self, wanted: float) -> bool:
        if self._memory.free() >= wanted:
            return False
        self._memory.trim()
        return True

    def free(self) -> int | None:
        self._memory.trim()
        return self._memory.free()

    def settle(self) -> None:
        self._adapter.synchronize()

    def finish(self, seconds: float, *, brief: bool = False) -> Finish:
        return self._idleness.await_idle(seconds, brief=brief)

    def is_quiet(self) -> bool:
        return self._idleness.is_quiet()

    def stays_busy(self) -> bool:
        return self._idleness.stays_busy()

    def _open(self, handle: str) -> torch.Tensor:
        """Return the memory of an allocation, opened by its handle. Raises ChannelError if the platform
        cannot open it."""
        if handle not in self._opened:
            try:
                self._opened[handle] = self._memory.open(handle)
            except PlatformError as error:
                raise ChannelError(f"its device memory cannot be opened: {error}") from None
        return self._opened[handle]


def _turned(leaf: Any) -> Any:
    """Return a tensor's values in reverse order, as a decoy."""
    return leaf.flip(tuple(range(leaf.dim()))) if isinstance(leaf, torch.Tensor) else leaf
