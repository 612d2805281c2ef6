"""How the referee accesses the memory of a stopped worker: on a host, or without access. (torch)

The outputs that are checked must be those of the timed calls. So the referee reads them in place while the worker is
stopped: in host memory through the kernel, on a device by handles of its allocations (`device_access.py`). It writes
inputs in the same way. If neither is possible, the worker is asked for its outputs, and the verdict gets a label.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from kforge.errors import ChannelError
from kforge.evaluation.constants import (
    BLOCK_SECONDS,
    DEVICE_INPUT_SHARE,
    MAX_CALLS_PER_BLOCK,
    MAX_INPUT_BYTES,
    SETTLE_SECONDS,
)
from kforge.evaluation.transport.aliases import mappings_of, shared_files_of
from kforge.evaluation.transport.process_memory import read_process
from kforge.evaluation.transport.shared_memory import ALIGNMENT, SharedRegion
from kforge.evaluation.worker_client.overwriting import overwrite_in_process
from kforge.platforms import host
from kforge.problems.tensors import HOST

if TYPE_CHECKING:
    import torch

    from kforge.evaluation.transport.aliases import Mapping
    from kforge.evaluation.transport.wire import TensorRef, Tree
    from kforge.evaluation.worker_client.overwriting import Edit
    from kforge.platforms import Adapter


class Finish(NamedTuple):
    """The end of a timed order."""

    nanoseconds: int
    """The time by the referee's clock."""
    late: bool
    """Whether the worker's device still worked when the worker reported the end."""


class NotShownError(ChannelError):
    """An output lies in device memory that the worker has not shared, probably because it cannot be shared."""


class OutputAccess:
    """No access, for devices whose memory cannot be shared between processes. Base class of the other kinds of
    access."""

    sees = False
    """Whether the referee can read and write the worker's memory."""
    shown = False
    """Whether the worker reports where its outputs lie, so that it need not copy them for the referee."""
    device_clock = False
    """Whether a worker times its blocks by its device's clock, which does not include the cost of starting them."""
    input_bytes = MAX_INPUT_BYTES
    """Most bytes of all inputs of one timed block."""
    calls = MAX_CALLS_PER_BLOCK
    """Most calls in a timed block."""
    block_seconds = BLOCK_SECONDS
    """Seconds that a timed block should take."""
    settling_calls: int | None = None
    """Calls after which a program needs no more new memory. None: as many as the other side has made."""
    settle_seconds = SETTLE_SECONDS
    """Seconds between the end of a block's preparation and the moment when the worker is stopped."""
    draws_ahead = False
    """Whether the inputs of the next block are drawn in advance. That saves time, but needs memory."""
    spins = False
    """Whether the referee waits for the end of a timed block without sleeping. Workers then use other cores."""
    saves = False
    """Whether memory is short, so that inputs may use only a part of it (`save`)."""

    def __init__(self, device: str | torch.device = HOST) -> None:
        """`device` is where the referee keeps its tensors."""
        self.device = device

    def save(self, limit: int) -> None:
        """Save memory, as the evaluation may use only `limit` bytes: inputs get a share, and none are drawn ahead."""
        self.input_bytes = min(self.input_bytes, int(DEVICE_INPUT_SHARE * limit))
        self.draws_ahead = False
        self.saves = True

    def region(self, size: int) -> SharedRegion:
        """Return a new shared region of this many bytes."""
        return SharedRegion.create(size)

    @property
    def alignment(self) -> int:
        """Bytes to which tensors in regions are aligned."""
        return ALIGNMENT

    def attach_inputs(self, region: SharedRegion, address: int) -> None:
        """Remember the region for inputs, and the address at which the worker says it has mapped it."""

    def detach_inputs(self) -> None:
        """Forget the region for inputs, so that its memory can be freed."""

    def inputs_in(self, pid: int) -> list[Mapping]:  # noqa: ARG002
        """Return where a worker has mapped the region for inputs; empty if that cannot be seen."""
        return []

    def files_in(self, pid: int) -> list[Mapping]:  # noqa: ARG002
        """Return the shared mappings of a worker, which may show the same memory twice; empty if they cannot be
        seen."""
        return []

    def show(self, region: SharedRegion, tree: Tree, values: Any) -> None:
        """Write values to their places in the region for inputs, while the worker is stopped."""
        region.fill(tree, values)

    def show_block(self, region: SharedRegion, tree: Tree, values: Any) -> None:
        """Flush the caches, and write the inputs of a block as `show` does. Called only if the access `sees`.

        The worker must not do the flush: a program could leave it out.
        """
        raise NotImplementedError

    def learn(self, allocations: Tree) -> None:
        """Remember the device allocations that a worker says contain its outputs. Raises ChannelError if they are
        malformed."""

    def forget(self) -> None:
        """Release the allocations from `learn`. A device frees memory of a worker only when no process has it open."""

    def read(self, pid: int, ref: TensorRef, limit: int) -> torch.Tensor:
        """Return a tensor of a stopped worker; it is valid until the worker runs again. Raises ChannelError if it is
        unreadable."""
        raise NotImplementedError

    def overwrite(self, pid: int, ref: TensorRef, edit: Edit) -> bool:  # noqa: ARG002
        """Write to an output of a worker, as a caller might (`overwriting.py`). Returns False if the output is
        read-only."""
        return True

    def make_room(self, wanted: float) -> bool:  # noqa: ARG002
        """Free cached memory of this process if fewer than `wanted` bytes are free. Returns whether it did."""
        return False

    def free(self) -> int | None:
        """Free cached memory of this process, and return the free bytes of the device; None on a host."""
        return None

    def settle(self) -> None:
        """Wait until the work of this process on the device is done."""

    def finish(self, seconds: float, *, brief: bool = False) -> Finish:  # noqa: ARG002
        """Wait at most `seconds` until the worker's device is idle. Returns when it was last examined, and whether it
        was still busy at the first examination.

        On a host there is nothing to wait for. With `brief`, one examination that finds the device idle is enough.
        """
        return Finish(time.perf_counter_ns(), late=False)

    def is_quiet(self) -> bool:
        """Return whether no work of another process runs on the device."""
        return True

    def stays_busy(self) -> bool:
        """Return whether another process uses the device, by several examinations."""
        return False


class HostAccess(OutputAccess):
    """Access to the memory of a worker on a host, through the kernel."""

    sees = True
    draws_ahead = True

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self._adapter = adapter
        self._inputs: SharedRegion | None = None

    def attach_inputs(self, region: SharedRegion, address: int) -> None:  # noqa: ARG002 - the kernel reports the true one
        self._inputs = region

    def detach_inputs(self) -> None:
        self._inputs = None

    def inputs_in(self, pid: int) -> list[Mapping]:
        return [] if self._inputs is None else mappings_of(pid, self._inputs)

    def files_in(self, pid: int) -> list[Mapping]:
        return shared_files_of(pid)

    def show_block(self, region: SharedRegion, tree: Tree, values: Any) -> None:
        # flushed before the inputs are written: in a user's program, too, inputs were written just before the call and
        # are still in the caches
        self._adapter.flush()
        self.show(region, tree, values)

    def read(self, pid: int, ref: TensorRef, limit: int) -> torch.Tensor:
        return read_process(pid, ref, limit)

    def overwrite(self, pid: int, ref: TensorRef, edit: Edit) -> bool:
        return overwrite_in_process(pid, ref, edit)

    def make_room(self, wanted: float) -> bool:  # noqa: ARG002 - others need memory, too, so all is freed
        if self.saves:
            host.trim_memory()
        return self.saves
