"""Device memory as the referee sees it: only what was shown, only inside it, whatever a worker says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kforge import platforms
from kforge.errors import ChannelError, EvaluationError, PlatformError
from kforge.evaluation.constants import QUIET_SECONDS, TURN_SECONDS
from kforge.evaluation.processes.machine_load import queued_seconds
from kforge.evaluation.transport.shared_memory import SharedRegion, address
from kforge.evaluation.transport.wire import TensorRef
from kforge.evaluation.worker.allocations import ShownAllocations
from kforge.evaluation.worker_client.device_access import DeviceAccess
from kforge.evaluation.worker_client.output_access import NotShownError
from kforge.platforms import Allocation
from kforge.problems.tensors import same


class HostAsDevice:
    """Shares memory inside one process: every allocation can be opened by whoever has its handle."""

    alignment = 512

    def __init__(self) -> None:
        self.allocations: list[torch.Tensor] = []

    def allocate(self, size: int) -> torch.Tensor:
        self.allocations.append(torch.zeros(size, dtype=torch.uint8))
        return self.allocations[-1]

    def export(self, address: int) -> Allocation:
        for number, flat in enumerate(self.allocations):
            if flat.data_ptr() <= address < flat.data_ptr() + flat.numel():
                return Allocation(flat.data_ptr(), flat.numel(), f"h{number}")
        raise PlatformError("that is not shared memory")

    def open(self, handle: str) -> torch.Tensor:
        number = handle.removeprefix("h")
        if not number.isdecimal() or int(number) >= len(self.allocations):
            raise PlatformError("there is no such memory")
        return self.allocations[int(number)]

    def free(self) -> int:
        return 1 << 40

    def within_reach(self) -> int:
        return self.free()

    def trim(self) -> None:
        pass


@pytest.fixture
def memory() -> HostAsDevice:
    return HostAsDevice()


@pytest.fixture
def access(memory: HostAsDevice) -> DeviceAccess:
    return DeviceAccess(platforms.find("null").adapter, memory)


def test_memory_that_is_not_there_is_the_evaluators_concern(access: DeviceAccess, memory: HostAsDevice) -> None:
    """Of the program that took it, if one did: `Pipeline` asks who that is."""

    def full(size: int) -> torch.Tensor:
        raise PlatformError(f"out of memory: {size}")

    memory.allocate = full  # type: ignore[method-assign]
    with pytest.raises(EvaluationError, match=r"the device does not have 2\.0 GB free for inputs: out of memory"):
        access.region(2_000_000_000)


def output(memory: HostAsDevice, value: float, count: int = 4) -> torch.Tensor:
    tensor = memory.allocate(4 * count + 64)[64:].view(torch.float32)
    return tensor.fill_(value)


def test_what_a_worker_shows_is_read_where_it_lies(memory: HostAsDevice, access: DeviceAccess) -> None:
    outputs = [output(memory, 1.0), (output(memory, 2.0), 3)]
    access.learn(ShownAllocations(memory).holding(outputs))
    for value, place in zip((1.0, 2.0), (address(outputs[0]), address(outputs[1])[0]), strict=True):
        assert same(access.read(0, place, 1 << 20), torch.full((4,), value))


def test_an_allocation_is_shown_once(memory: HostAsDevice) -> None:
    flat = memory.allocate(64)
    assert ShownAllocations(memory).holding([flat[:8], flat[8:16], flat[16:]]) == [(flat.data_ptr(), "h0")]


def test_what_is_known_is_asked_again_only_between_blocks(memory: HostAsDevice) -> None:
    shown, flat = ShownAllocations(memory), memory.allocate(64)
    assert shown.holding([flat]) == [(flat.data_ptr(), "h0")]
    memory.allocations[0:1] = [torch.empty(0), flat]  # freed, and allocated again in the same place
    assert shown.holding([flat]) == [], "as it was told"
    shown.refresh()
    assert shown.holding([flat[32:], flat]) == [(flat.data_ptr(), "h1")]
    del memory.allocations[:]
    shown.refresh()
    assert shown.holding([flat]) == []


def test_many_allocations_are_told_apart(memory: HostAsDevice) -> None:
    shown, outputs = ShownAllocations(memory), [output(memory, float(n)) for n in range(9)]
    for some in (outputs[::2], outputs, [*outputs[::-1], output(memory, 9.0)]):
        expected = {t.untyped_storage().data_ptr() for t in some}
        assert {base for base, _ in shown.holding(some)} == expected


def test_what_was_told_is_not_told_again(memory: HostAsDevice, access: DeviceAccess) -> None:
    shown, outputs = ShownAllocations(memory), [output(memory, 1.0), output(memory, 2.0)]
    access.learn(shown.holding(outputs))
    access.learn(shown.holding(outputs[:1]))
    assert shown.holding(outputs[1:]) == []
    assert same(access.read(0, address(outputs[1]), 1 << 20), torch.full((4,), 2.0))


def test_what_cannot_be_shown_cannot_be_read(memory: HostAsDevice, access: DeviceAccess) -> None:
    hidden = torch.zeros(4)
    access.learn(ShownAllocations(memory).holding([output(memory, 1.0), hidden]))
    for there in (address(hidden), replace(address(hidden), offset=1), replace(address(hidden), offset=1 << 62)):
        with pytest.raises(NotShownError, match="other processes cannot open"):
            access.read(0, there, 1 << 20)


@pytest.mark.parametrize(
    "said",
    [None, 7, [3], [(1, 2)], [("h0", 1)], [(1, "h0", 2)], [(1, "made up")], [(1, "h0")] * 5000],
)
def test_nonsense_is_refused(memory: HostAsDevice, access: DeviceAccess, said: object) -> None:
    memory.allocate(64)
    with pytest.raises(ChannelError):
        access.learn(said)


@pytest.mark.parametrize("handles", [("h0", "h0"), ("h0", "h00"), ("h1", "h0", "h1")])
def test_one_allocation_cannot_stand_for_several(
    memory: HostAsDevice, access: DeviceAccess, handles: tuple[str, ...]
) -> None:
    """Otherwise one output could be read as the outputs of many calls, at addresses that do not overlap."""
    for _ in range(2):
        memory.allocate(64)
    with pytest.raises(ChannelError, match="at several addresses"):
        access.learn([(number << 20, handle) for number, handle in enumerate(handles, 1)])


def test_an_allocation_may_move_between_blocks(memory: HostAsDevice, access: DeviceAccess) -> None:
    flat = memory.allocate(64)
    for base in (1 << 20, 1 << 21):
        access.learn([(base, "h0")])
        assert access.read(0, TensorRef("uint8", (64,), (1,), base), 64).data_ptr() == flat.data_ptr()


@pytest.mark.parametrize("offset", [-8, -1, 60, 64, 1 << 40, 2])
def test_nothing_outside_an_allocation_is_read(memory: HostAsDevice, access: DeviceAccess, offset: int) -> None:
    memory.allocate(64)
    access.learn([(1 << 20, "h0")])
    assert access.read(0, TensorRef("float32", (16,), (1,), 1 << 20), 1 << 20).shape == (16,)
    with pytest.raises(ChannelError):
        access.read(0, TensorRef("float32", (4,), (1,), (1 << 20) + offset), 1 << 20)


def test_what_is_no_longer_shown_is_let_go(memory: HostAsDevice, access: DeviceAccess) -> None:
    memory.allocate(64)
    memory.allocate(64)
    access.learn([(1 << 20, "h0"), (1 << 21, "h1")])
    access.learn([(1 << 21, "h1")])
    with pytest.raises(ChannelError):
        access.read(0, TensorRef("float32", (4,), (1,), 1 << 20), 1 << 20)


def test_a_region_of_device_memory_crosses_by_its_handle(memory: HostAsDevice) -> None:
    value = {"a": torch.arange(5.0), "b": [torch.ones(3, dtype=torch.int64), 2]}
    ours = SharedRegion.on_device(memory, 4096)
    tree = ours.pack(value)
    assert tree["b"][0].offset == 512
    assert same(SharedRegion.opened(memory, ours.handle).unpack(tree), value)


class Clock:
    """In place of the module `time`: goes on when it is looked at or slept on, however busy this machine is."""

    LOOK = 1e-6

    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        self.now += self.LOOK
        return self.now

    def perf_counter_ns(self) -> int:
        return int(1e9 * self.perf_counter())

    monotonic = perf_counter

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("kforge.evaluation.worker_client.device_idleness.time", clock)
    return clock


class Turning:
    """A device that others work on until so many kernels of ours have waited for them."""

    KERNEL = 2e-5

    def __init__(self, waits: list[float], clock: Clock) -> None:
        self.waits = waits
        self.clock = clock
        self.kernels = 0
        self.waited = 0.0

    def device(self) -> str:
        return "cpu"

    def synchronize(self) -> None:
        self.kernels += 1
        start = self.clock.now
        self.clock.sleep(self.KERNEL + (self.waits.pop(0) if self.waits else 0.0))
        self.waited += self.clock.now - start


LONG = 4 * QUIET_SECONDS


@pytest.mark.parametrize(
    ("waits", "late", "kernels"),
    [
        ([], False, 2),
        ([LONG, LONG], True, 4),
        # it came in its own slice of time, and the other's work went on when that was over
        ([0.0, LONG], True, 4),
        ([LONG, 0.0, LONG], True, 5),
    ],
)
def test_the_clock_stops_when_the_device_is_idle_for_good(
    memory: HostAsDevice, clock: Clock, waits: list[float], late: bool, kernels: int
) -> None:
    device = Turning(list(waits), clock)
    access = DeviceAccess(device, memory)  # type: ignore[arg-type]
    start = clock.perf_counter_ns()
    finish = access.finish(5.0)
    assert finish.late is late
    assert device.kernels >= kernels
    # nobody pays for the last look, and who was not done for all that came before
    spent, whole = finish.nanoseconds - start, clock.perf_counter_ns() - start
    assert 1e9 * sum(waits) <= spent < whole - 0.9e9 * TURN_SECONDS


def test_waiting_for_a_device_that_never_rests_ends(memory: HostAsDevice, clock: Clock) -> None:
    access = DeviceAccess(Turning([LONG] * 1000, clock), memory)  # type: ignore[arg-type]
    assert access.finish(0.05).late
    assert not access.is_quiet()
    assert access.stays_busy()


def test_a_look_that_waited_for_a_core_says_nothing(
    memory: HostAsDevice, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy host must not make a program seem to work unbidden."""
    device = Turning([LONG] * 8, clock)
    monkeypatch.setattr("kforge.evaluation.worker_client.device_idleness.queued_seconds", lambda: device.waited)
    assert DeviceAccess(device, memory).is_quiet()  # type: ignore[arg-type]
    assert device.kernels >= 9


def test_a_host_that_is_always_busy_does_not_hide_a_device_that_is(
    memory: HostAsDevice, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Turning([LONG] * 1000, clock)
    monkeypatch.setattr("kforge.evaluation.worker_client.device_idleness.queued_seconds", lambda: device.waited)
    assert not DeviceAccess(device, memory).is_quiet()  # type: ignore[arg-type]


def test_the_kernel_tells_how_long_a_core_was_waited_for() -> None:
    if not Path("/proc/thread-self/schedstat").exists():
        pytest.skip("this kernel does not tell how long a core was waited for")
    cores = os.sched_getaffinity(0)
    core = {min(cores)}
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            os.sched_setaffinity(other.pid, core)
            os.sched_setaffinity(0, core)
            before, end = queued_seconds(), time.monotonic() + 10.0
            while queued_seconds() < before + LONG and time.monotonic() < end:
                pass
            assert queued_seconds() >= before + LONG
        finally:
            os.sched_setaffinity(0, cores)
            other.kill()
