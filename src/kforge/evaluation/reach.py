"""What of a worker the referee can see by itself, without asking. (torch)

The outputs that are checked must be those of the timed calls. So the referee reads them where they lie, while the
worker is held still: in host memory through the system, on a device by handles of its allocations. Inputs appear there
in the same way, when nobody can look at them yet. Where it can do neither, outputs are asked for, which is labelled.

A process that is held still may have left work to its device. A kernel of the referee's own shows that: on an idle
device it is done in 20 µs, behind another process's work it waits for that to end or for the next slice of time (2.4 ms
on an H200). The clock of a timed block stops when such a kernel is done at once, and not when the worker says so. One
is not enough: it may have come in its own slice, and the other process's work goes on when that is over. So more follow
one after another for as long as a device takes to turn to whoever has work for it, and who still worked then pays for
all of it.
"""

from __future__ import annotations

import bisect
import secrets
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ChannelError, EvaluationError, PlatformError
from kforge.evaluation.aliases import Mapping, mappings_of, shared_files_of
from kforge.evaluation.constants import (
    AWAKE_SECONDS,
    BLOCK_SECONDS,
    BUSY_LOOKS,
    BUSY_PAUSE,
    DECOY_BYTES,
    DEVICE_BLOCK_SECONDS,
    DEVICE_INPUT_SHARE,
    DEVICE_SETTLING_CALLS,
    MAX_CALLS_PER_BLOCK,
    MAX_DEVICE_CALLS,
    MAX_INPUT_BYTES,
    MOST_DECOYS,
    QUIET_LOOKS,
    QUIET_SECONDS,
    QUIET_TRIES,
    SETTLE_SECONDS,
    TURN_SECONDS,
)
from kforge.evaluation.load import queued_seconds
from kforge.evaluation.memory import ALIGNMENT, Region, bytes_of, read_process, tensor_at
from kforge.evaluation.overwriting import overwrite, overwrite_in_process
from kforge.platforms import host
from kforge.problems.tensors import HOST, tensors_in

if TYPE_CHECKING:
    from kforge.evaluation.wire import TensorRef, Tree
    from kforge.platforms import Adapter, Allocation, DeviceMemory

MAX_ALLOCATIONS = 4096


class Finish(NamedTuple):
    """The end of what a worker was told to do."""

    nanoseconds: int
    """By the referee's clock."""
    late: bool
    """Whether its device still worked when it said that it was done."""


class Reach:
    """Nothing can be seen: a device whose memory is not shared between processes."""

    sees = False
    shown = False
    """Whether a worker shows where its outputs lie, so that none need be copied for us."""
    device_clock = False
    """Whether a worker times its blocks by its device, which leaves out what telling it to go costs."""
    input_bytes = MAX_INPUT_BYTES
    """Of all inputs of one timed block."""
    calls = MAX_CALLS_PER_BLOCK
    block_seconds = BLOCK_SECONDS
    settling_calls: int | None = None
    """Calls after which a program's memory has settled; None: as many as the other side has made."""
    settle_seconds = SETTLE_SECONDS
    draws_ahead = False
    """Whether inputs take long to draw, and no memory that is dear."""
    spins = False
    """Whether the referee waits for the end of a timed block awake: its core is nobody else's then."""
    saves = False
    """Whether memory is short, see `save`."""

    def __init__(self, home: str | torch.device = HOST) -> None:
        """`home`: where the referee has its values."""
        self.home = home

    def save(self, limit: int) -> None:
        """Hold as few inputs at once as possible, where memory is limited to `limit` bytes."""
        self.input_bytes = min(self.input_bytes, int(DEVICE_INPUT_SHARE * limit))
        self.draws_ahead = False
        self.saves = True

    def region(self, size: int) -> Region:
        return Region.create(size)

    @property
    def alignment(self) -> int:
        """Of tensors in regions."""
        return ALIGNMENT

    def attach_inputs(self, region: Region, address: int) -> None:
        """Take note of the region for inputs, and of the address at which the worker says that it has it."""

    def detach_inputs(self) -> None:
        """Let go of that region."""

    def inputs_in(self, pid: int) -> list[Mapping]:  # noqa: ARG002
        """Where a worker has the region for inputs in its memory, as far as that can be seen from here."""
        return []

    def files_in(self, pid: int) -> list[Mapping]:  # noqa: ARG002
        """Memory of a worker that may be mapped several times, as far as that can be seen from here."""
        return []

    def show(self, region: Region, tree: Tree, values: Any) -> None:
        """Write values to their places in the region for inputs, while the worker is held still."""
        region.fill(tree, values)

    def learn(self, allocations: Tree) -> None:
        """What a worker says about where its outputs lie. Raises ChannelError for what makes no sense."""

    def forget(self) -> None:
        """Let go of what was learnt: memory that a worker frees is free when nobody looks at it any more."""

    def read(self, pid: int, ref: TensorRef, limit: int) -> torch.Tensor:
        """A tensor of a worker, good as long as that is held still. Raises ChannelError where nothing can be read."""
        raise NotImplementedError

    def overwrite(self, pid: int, ref: TensorRef, *, whole: bool) -> None:
        """Write to an output of a worker as a caller might (overwriting.py), where that is possible from here."""

    def make_room(self, wanted: float) -> bool:  # noqa: ARG002
        """Let go of memory that this process keeps for later, where fewer bytes are free; whether it did."""
        return False

    def free(self) -> int | None:
        """Bytes of the memory that both sides share that nobody needs, where it is small enough to matter.

        What this process keeps for later is let go of first.
        """
        return None

    def settle(self) -> None:
        """Wait until what this process has begun is done."""

    def flush(self) -> None:
        """Drive what this process has just written out of the caches."""

    def finish(self, seconds: float, *, brief: bool = False) -> Finish:  # noqa: ARG002
        """Wait until what the worker has begun is done, as far as that can be seen from here, at most so long.

        `brief`: do not look again later whether it has begun something else.
        """
        return Finish(time.perf_counter_ns(), late=False)

    def is_quiet(self) -> bool:
        """Whether nothing is under way that another process has begun."""
        return True

    def stays_busy(self) -> bool:
        """Whether somebody works there now and then, looked at for longer."""
        return False


class HostReach(Reach):
    """The worker's memory is the host's."""

    sees = True
    draws_ahead = True

    def __init__(self) -> None:
        super().__init__()
        self._inputs: Region | None = None

    def attach_inputs(self, region: Region, address: int) -> None:  # noqa: ARG002 - the kernel tells it better
        self._inputs = region

    def detach_inputs(self) -> None:
        self._inputs = None

    def inputs_in(self, pid: int) -> list[Mapping]:
        return [] if self._inputs is None else mappings_of(pid, self._inputs)

    def files_in(self, pid: int) -> list[Mapping]:
        return shared_files_of(pid)

    def read(self, pid: int, ref: TensorRef, limit: int) -> torch.Tensor:
        return read_process(pid, ref, limit)

    def overwrite(self, pid: int, ref: TensorRef, *, whole: bool) -> None:
        overwrite_in_process(pid, ref, whole=whole)

    def make_room(self, wanted: float) -> bool:  # noqa: ARG002 - what is free here is not asked: others need it, too
        if self.saves:
            host.trim_memory()
        return self.saves


class DeviceReach(Reach):
    """Memory and inputs are on a device; for one worker."""

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

    def region(self, size: int) -> Region:
        """Raises EvaluationError where there is no room, which may be the doing of the program that is judged."""
        try:
            return Region.on_device(self._memory, size)
        except PlatformError as error:
            raise EvaluationError(f"the device has no {size / 1e9:.1f} GB for inputs: {error}") from None

    @property
    def alignment(self) -> int:
        return self._memory.alignment

    def attach_inputs(self, region: Region, address: int) -> None:
        self._inputs = (address, region.flat)

    def detach_inputs(self) -> None:
        self._inputs = None

    def inputs_in(self, pid: int) -> list[Mapping]:  # noqa: ARG002
        """By the worker's word: what it says to lie there is read from there, so a lie makes inputs of its outputs."""
        if self._inputs is None:
            return []
        address, flat = self._inputs
        return [Mapping(address, address + flat.numel(), 0)]

    def show(self, region: Region, tree: Tree, values: Any) -> None:
        """After a random number of decoys: work that was queued to begin when its inputs change begins on one of them.

        Work on large inputs takes long enough to be seen before the clock starts.
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
        self._allocations = sorted(found.items(), key=lambda pair: pair[0])
        self._opened = {handle: flat for handle, flat in self._opened.items() if any(flat is x for x in found.values())}

    def read(self, pid: int, ref: TensorRef, limit: int) -> torch.Tensor:  # noqa: ARG002 - by handles
        if 0 in ref.shape:  # it lies nowhere
            return torch.empty(ref.shape, dtype=getattr(torch, ref.dtype), device=self.home)
        for mapping in self.inputs_in(pid):  # which only the referee can show to others
            if mapping.begin <= ref.offset < mapping.end and self._inputs is not None:
                return tensor_at(self._inputs[1], ref, ref.offset - mapping.begin)
        at = bisect.bisect_right(self._allocations, ref.offset, key=lambda pair: pair[0]) - 1
        if at < 0:
            raise ChannelError("an output lies in memory that it has not shown")
        base, flat = self._allocations[at]
        return tensor_at(flat, ref, ref.offset - base)

    def overwrite(self, pid: int, ref: TensorRef, *, whole: bool) -> None:
        overwrite(self.read(pid, ref, 0), whole=whole)

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
            # what the device did while the host was busy with others is not known: such a look says nothing
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
        """As long as it takes a device to turn to whoever else has work for it."""
        end = time.perf_counter() + TURN_SECONDS
        while time.perf_counter() < end:
            if not self._is_idle(AWAKE_SECONDS):
                return False
        return True

    def _is_idle(self, seconds: float = QUIET_SECONDS) -> bool:
        """Whether a kernel of ours is done as soon as on an idle device."""
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
    """The same numbers in another order."""
    return leaf.flip(tuple(range(leaf.dim()))) if isinstance(leaf, torch.Tensor) else leaf


class Shown:
    """The worker's side: the allocations that its outputs lie in, as `DeviceReach.learn` takes them.

    Asking the driver takes 45 µs for every output, and it is asked inside a timed block: so what is known is not asked
    again, and whether it still holds is asked before the next block.
    """

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._known: list[Allocation] = []
        self._told: dict[int, str] = {}

    def refresh(self) -> None:
        """Forget what has been freed since."""
        self._known = [one for one in self._known if self._asked(one.base) == one]

    def forget(self) -> None:
        """All of it, as `DeviceReach.forget`."""
        self._known, self._told = [], {}

    def shows(self, tensor: torch.Tensor) -> bool:
        """Whether it lies where it can be read by another process, as it is: managed or pooled memory is not shown."""
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            return False
        return not tensor.numel() or self._holding(tensor.data_ptr()) is not None

    def holding(self, outputs: Any) -> list[tuple[int, str]]:
        """Nothing where all of it was told the last time: reading a list of handles is inside the block as well."""
        found: dict[int, str] = {}
        for tensor in tensors_in(outputs):
            one = self._holding(tensor.data_ptr()) if tensor.numel() else None
            if one is not None:  # else the referee says that it sees nothing
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
