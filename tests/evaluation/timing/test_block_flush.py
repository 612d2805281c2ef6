"""Caches are flushed for a block by the referee, while the worker is stopped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge.evaluation.transport import wire
from kforge.evaluation.worker_client.device_access import DeviceAccess
from kforge.evaluation.worker_client.input_region import InputRegion
from kforge.evaluation.worker_client.output_access import HostAccess, OutputAccess
from kforge.evaluation.worker_client.timed_block import TimedBlock

if TYPE_CHECKING:
    from kforge.evaluation.transport.shared_memory import SharedRegion


class Recorder:
    """Orders and an adapter of one worker, which note what is done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.region: SharedRegion | None = None

    def attach(self, _: str, region: SharedRegion) -> int:
        self.region = region
        return 0

    def order(self, order: wire.Prepare, *_: object, **__: object) -> wire.Ready:
        self.done.append("worker flushes" if order.flush else "worker prepares")
        return wire.Ready()

    def flush(self) -> None:
        assert self.region is not None
        written = self.region.flat.view(torch.float32).eq(3.0).any()
        self.done.append("flush after inputs" if written else "flush before inputs")


def prepared(access: Any, recorder: Recorder, *, paced: bool = False) -> list[str]:
    """Return what is done to prepare a block whose inputs are threes."""
    inputs = InputRegion(recorder, access)  # type: ignore[arg-type]
    outputs = SimpleNamespace(forget=lambda: None, most=0)
    block = TimedBlock(None, recorder, access, inputs, outputs, deadline=1.0)  # type: ignore[arg-type]
    block.prepare([[torch.full((4,), 3.0)]], paced=paced)
    return recorder.done


@pytest.mark.parametrize(
    ("paced", "done"), [(False, ["worker prepares", "flush before inputs"]), (True, ["worker prepares"])]
)
def test_on_a_host_the_referee_flushes_once_the_worker_is_stopped(paced: bool, done: list[str]) -> None:
    recorder = Recorder()
    assert prepared(HostAccess(recorder), recorder, paced=paced) == done  # type: ignore[arg-type]


def test_on_a_device_the_referee_flushes_what_it_has_just_written() -> None:
    recorder = Recorder()
    adapter = SimpleNamespace(device=lambda: "cpu", flush=recorder.flush, synchronize=lambda: None)
    memory = SimpleNamespace(within_reach=lambda: 1 << 30, free=lambda: 1 << 30, alignment=64)
    access = DeviceAccess(adapter, memory)  # type: ignore[arg-type]
    access.region, access.attach_inputs = OutputAccess().region, lambda *_: None  # type: ignore[method-assign]
    assert prepared(access, recorder) == ["worker prepares", "flush after inputs"]


def test_a_worker_whose_memory_the_referee_cannot_write_flushes_itself() -> None:
    recorder = Recorder()
    assert prepared(OutputAccess(), recorder) == ["worker flushes"]
