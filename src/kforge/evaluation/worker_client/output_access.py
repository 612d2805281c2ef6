"""Access to the memory of a frozen worker, on a host or where nothing can be seen. (torch)

The outputs that are checked must be those of the timed calls. So the referee reads them where they lie while the worker
is frozen: in host memory through the kernel, on a device by handles of its allocations (device_access.py). Inputs are
written there in the same way. Where neither is possible, the worker is asked for its outputs, which is labelled.
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


class Finish(NamedTuple):
    """The end of a worker's order."""

    nanoseconds: int
    """By the referee's clock."""
    late: bool
    """Whether its device still worked when it reported that it was done."""


class NotShownError(ChannelError):
    """An output lies in memory that the worker has not shown, most likely because it cannot be shown."""


class OutputAccess:
    """No access: the memory of a device that is not shared between processes. The base class of the others."""

    sees = False
    shown = False
    """Whether a worker shows where its outputs lie, so that they need not be copied for the referee."""
    device_clock = False
    """Whether a worker times its blocks by its device, which leaves out the cost of starting them."""
    input_bytes = MAX_INPUT_BYTES
    """Most bytes of all inputs of one timed block."""
    calls = MAX_CALLS_PER_BLOCK
    block_seconds = BLOCK_SECONDS
    settling_calls: int | None = None
    """Calls after which a program's memory has settled; None: as many as the other side has made."""
    settle_seconds = SETTLE_SECONDS
    draws_ahead = False
    """Whether inputs take long to draw, and no scarce memory."""
    spins = False
    """Whether the referee waits for the end of a timed block without sleeping: no other process then uses its core."""
    saves = False
    """Whether memory is short, see `save`."""

    def __init__(self, device: str | torch.device = HOST) -> None:
        """`device`: where the referee keeps its values."""
        self.device = device

    def save(self, limit: int) -> None:
        """Hold as few inputs at once as possible, where memory is limited to `limit` bytes."""
        self.input_bytes = min(self.input_bytes, int(DEVICE_INPUT_SHARE * limit))
        self.draws_ahead = False
        self.saves = True

    def region(self, size: int) -> SharedRegion:
        return SharedRegion.create(size)

    @property
    def alignment(self) -> int:
        """Alignment of tensors in regions."""
        return ALIGNMENT

    def attach_inputs(self, region: SharedRegion, address: int) -> None:
        """Record the region for inputs, and the address at which the worker says that it has it."""

    def detach_inputs(self) -> None:
        """Release that region."""

    def inputs_in(self, pid: int) -> list[Mapping]:  # noqa: ARG002
        """Return where a worker has the region for inputs in its memory, as far as that can be seen from here."""
        return []

    def files_in(self, pid: int) -> list[Mapping]:  # noqa: ARG002
        """Return memory of a worker that may be mapped several times, as far as that can be seen from here."""
        return []

    def show(self, region: SharedRegion, tree: Tree, values: Any) -> None:
        """Write values to their places in the region for inputs, while the worker is held still."""
        region.fill(tree, values)

    def learn(self, allocations: Tree) -> None:
        """Record what a worker says about where its outputs lie. Raises ChannelError for an invalid description."""

    def forget(self) -> None:
        """Release what was recorded: memory that a worker frees is only freed when nothing here refers to it."""

    def read(self, pid: int, ref: TensorRef, limit: int) -> torch.Tensor:
        """Return a tensor of a worker, valid as long as the worker is held still. Raises ChannelError where nothing can
        be read."""
        raise NotImplementedError

    def overwrite(self, pid: int, ref: TensorRef, edit: Edit) -> bool:  # noqa: ARG002
        """Write to an output of a worker as a caller might (overwriting.py). Returns False where it is read-only."""
        return True

    def make_room(self, wanted: float) -> bool:  # noqa: ARG002
        """Free cached memory of this process, where fewer bytes than this are free. Returns whether it did."""
        return False

    def free(self) -> int | None:
        """Return the free bytes of the memory that both sides share, where it is small enough to matter.

        This process's cached memory is freed first.
        """
        return None

    def settle(self) -> None:
        """Wait until the work of this process on the device is done."""

    def flush(self) -> None:
        """Evict what this process has just written from the caches."""

    def finish(self, seconds: float, *, brief: bool = False) -> Finish:  # noqa: ARG002
        """Wait until the worker's device is idle, where that can be seen, for at most `seconds`.

        `brief`: do not check again later whether it has begun something else.
        """
        return Finish(time.perf_counter_ns(), late=False)

    def is_quiet(self) -> bool:
        """Return whether no work of another process is running."""
        return True

    def stays_busy(self) -> bool:
        """Return whether another process uses the device now and then, by several checks."""
        return False


class HostAccess(OutputAccess):
    """Access to a worker whose memory is the host's."""

    sees = True
    draws_ahead = True

    def __init__(self) -> None:
        super().__init__()
        self._inputs: SharedRegion | None = None

    def attach_inputs(self, region: SharedRegion, address: int) -> None:  # noqa: ARG002 - the kernel tells it better
        self._inputs = region

    def detach_inputs(self) -> None:
        self._inputs = None

    def inputs_in(self, pid: int) -> list[Mapping]:
        return [] if self._inputs is None else mappings_of(pid, self._inputs)

    def files_in(self, pid: int) -> list[Mapping]:
        return shared_files_of(pid)

    def read(self, pid: int, ref: TensorRef, limit: int) -> torch.Tensor:
        return read_process(pid, ref, limit)

    def overwrite(self, pid: int, ref: TensorRef, edit: Edit) -> bool:
        return overwrite_in_process(pid, ref, edit)

    def make_room(self, wanted: float) -> bool:  # noqa: ARG002 - what is free here is not asked: others need it, too
        if self.saves:
            host.trim_memory()
        return self.saves
