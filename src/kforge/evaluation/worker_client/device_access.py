"""Access to the memory of a worker on a device: by handles of its allocations. (torch)

A frozen process may have left work to its device. A kernel of the referee's own shows that: on an idle device it is
done in 20 µs; behind the work of another process it waits for that to end, or for the next time slice (2.4 ms on an
H200). The clock of a timed block stops when such a kernel is done at once, and not when the worker says so. One kernel
is not enough: it may have run in its own time slice, and the other process goes on after it. So more follow for as long
as a device takes to switch between processes. A worker whose device still worked then pays for all of it.
"""

from __future__ import annotations

import bisect
import secrets
import time
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ChannelError, EvaluationError, PlatformError
from kforge.evaluation.processes.machine_load import queued_seconds
from kforge.evaluation.protocol import (
    AWAKE_SECONDS,
    BUSY_LOOKS,
    BUSY_PAUSE,
    DECOY_BYTES,
    DEVICE_BLOCK_SECONDS,
    DEVICE_INPUT_SHARE,
    DEVICE_SETTLING_CALLS,
    MAX_DEVICE_CALLS,
    MOST_DECOYS,
    QUIET_LOOKS,
    QUIET_SECONDS,
    QUIET_TRIES,
    TURN_SECONDS,
)
from kforge.evaluation.transport.aliases import Mapping
from kforge.evaluation.transport.shared_memory import SharedRegion, bytes_of, tensor_at
from kforge.evaluation.worker_client.output_access import Finish, NotShownError, OutputAccess
from kforge.evaluation.worker_client.overwriting import overwrite

if TYPE_CHECKING:
    from kforge.evaluation.transport.wire import TensorRef, Tree
    from kforge.evaluation.worker_client.overwriting import Edit
    from kforge.platforms import Adapter, DeviceMemory

MAX_ALLOCATIONS = 4096
NOT_SHOWN = (
    "an output of a timed call lies in device memory that other processes cannot open, so it cannot be checked: return "
    "outputs in memory of torch's default allocator, without expandable segments or a stream-ordered memory pool"
)


class DeviceAccess(OutputAccess):
    """Access to one worker whose inputs and outputs are on a device."""

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
        self._canary = torch.zeros(64, device=adapter.device())

    def region(self, size: int) -> SharedRegion:
        """Make a region. Raises EvaluationError where there is no room, which the judged program may have caused."""
        try:
            return SharedRegion.on_device(self._memory, size)
        except PlatformError as error:
            raise EvaluationError(f"the device has no {size / 1e9:.1f} GB for inputs: {error}") from None

    @property
    def alignment(self) -> int:
        return self._memory.alignment

    def attach_inputs(self, region: SharedRegion, address: int) -> None:
        self._inputs = (address, region.flat)

    def detach_inputs(self) -> None:
        self._inputs = None

    def inputs_in(self, pid: int) -> list[Mapping]:  # noqa: ARG002
        """Return the worker's own claim: inputs are read from there, so a lie only turns its outputs into inputs."""
        if self._inputs is None:
            return []
        address, flat = self._inputs
        return [Mapping(address, address + flat.numel(), 0)]

    def show(self, region: SharedRegion, tree: Tree, values: Any) -> None:
        """Write the values, after a random number of decoys: a kernel that waits on the device until its inputs change
        starts on a decoy.

        Large values have no decoys, because such a kernel then runs long enough to be seen before the clock starts.
        """
        if bytes_of(values) <= DECOY_BYTES:
            turned = pytree.tree_map(_turned, values)
            for number in range(secrets.randbelow(MOST_DECOYS) + 1):
                region.fill(tree, turned if number % 2 == 0 else values)
                self._adapter.synchronize()
            region.fill(tree, turned)
            self._adapter.synchronize()
        region.fill(tree, values)

    def forget(self) -> None:
        self._allocations, self._opened = [], {}

    def learn(self, allocations: Tree) -> None:
        if not isinstance(allocations, list) or len(allocations) > MAX_ALLOCATIONS:
            raise ChannelError("its device memory is not a list of allocations")
        if not allocations:  # those of the block before
            return
        found = {}
        for entry in allocations:
            match entry:
                case (int() as base, str() as handle):
                    found[base] = self._open(handle)
                case _:
                    raise ChannelError("its device memory is not a list of allocations")
        # by where they are opened, since a handle can be spelled in several ways
        if len({flat.data_ptr() for flat in found.values()}) < len(found):
            raise ChannelError("it lists one allocation of device memory at several addresses")
        self._allocations = sorted(found.items(), key=lambda pair: pair[0])
        self._opened = {handle: flat for handle, flat in self._opened.items() if any(flat is x for x in found.values())}

    def read(self, pid: int, ref: TensorRef, limit: int) -> torch.Tensor:  # noqa: ARG002 - by handles
        if 0 in ref.shape:  # it lies nowhere
            return torch.empty(ref.shape, dtype=getattr(torch, ref.dtype), device=self.device)
        for mapping in self.inputs_in(pid):  # which only the referee can show to others
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

    def flush(self) -> None:
        self._adapter.flush()

    def finish(self, seconds: float, *, brief: bool = False) -> Finish:
        late = False
        end = time.monotonic() + seconds
        while True:
            idle, done = self._is_idle(), time.perf_counter_ns()
            if (idle and (brief or self._stays_idle())) or time.monotonic() > end:
                return Finish(done, late=late)
            late = True

    def is_quiet(self) -> bool:
        tries = QUIET_TRIES
        for _ in range(QUIET_LOOKS):
            queued, start = queued_seconds(), time.perf_counter()
            if self._is_idle():
                return True
            # it is not known what the device did while the host was busy with others: the check says nothing
            tries -= (time.perf_counter() - start) - (queued_seconds() - queued) >= QUIET_SECONDS
            if not tries:
                break
        return False

    def stays_busy(self) -> bool:
        for _ in range(BUSY_LOOKS):
            if not self._is_idle():
                return True
            time.sleep(BUSY_PAUSE)
        return False

    def _stays_idle(self) -> bool:
        """Whether the device stays idle for as long as it takes to switch to another process."""
        end = time.perf_counter() + TURN_SECONDS
        while time.perf_counter() < end:
            if not self._is_idle(AWAKE_SECONDS):
                return False
        return True

    def _is_idle(self, seconds: float = QUIET_SECONDS) -> bool:
        """Return whether a kernel of ours is done as soon as on an idle device."""
        start = time.perf_counter()
        self._canary.add_(1)
        self._adapter.synchronize()
        return time.perf_counter() - start < seconds

    def _open(self, handle: str) -> torch.Tensor:
        if handle not in self._opened:
            try:
                self._opened[handle] = self._memory.open(handle)
            except PlatformError as error:
                raise ChannelError(f"its device memory cannot be opened: {error}") from None
        return self._opened[handle]


def _turned(leaf: Any) -> Any:
    """Return the same numbers in another order, as a decoy."""
    return leaf.flip(tuple(range(leaf.dim()))) if isinstance(leaf, torch.Tensor) else leaf
