"""Finds out whether a device is idle while all workers are stopped, by running small kernels of the referee. (torch)

A stopped process may have left work on its device. On an idle device, a small kernel of the referee takes 20 µs. Behind
the work of another process it waits for that work to end, or for the next time slice (2.4 ms on an H200). The clock of
a timed block stops when such a kernel is quick, and not when the worker reports the end. One quick kernel is not
enough: it may have run in its own time slice, before the other process goes on. So more kernels follow, for as long as
a device takes to switch between processes. If the device still works then, that time counts for the worker.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from kforge.evaluation.constants import (
    AWAKE_SECONDS,
    BUSY_LOOKS,
    BUSY_PAUSE,
    QUIET_LOOKS,
    QUIET_SECONDS,
    QUIET_TRIES,
    TURN_SECONDS,
)
from kforge.evaluation.processes.machine_load import queued_seconds
from kforge.evaluation.worker_client.output_access import Finish

if TYPE_CHECKING:
    from kforge.platforms import Adapter


class DeviceIdleness:
    """Examines whether one device is idle."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._canary = torch.zeros(64, device=adapter.device())

    def await_idle(self, seconds: float, *, brief: bool = False) -> Finish:
        """Wait at most `seconds` until the device is idle. Returns when it was last examined, and whether it was still
        busy at the first examination.

        With `brief`, one examination that finds the device idle is enough.
        """
        late = False
        end = time.monotonic() + seconds
        while True:
            idle, done = self._is_idle(), time.perf_counter_ns()
            if (idle and (brief or self._stays_idle())) or time.monotonic() > end:
                return Finish(done, late=late)
            late = True

    def is_quiet(self) -> bool:
        """Return whether no work of another process runs on the device."""
        tries = QUIET_TRIES
        for _ in range(QUIET_LOOKS):
            queued, start = queued_seconds(), time.perf_counter()
            if self._is_idle():
                return True
            # while this thread waited for a core of the host, the device may have been idle: that time does not count
            tries -= (time.perf_counter() - start) - (queued_seconds() - queued) >= QUIET_SECONDS
            if not tries:
                break
        return False

    def stays_busy(self) -> bool:
        """Return whether another process uses the device, by several examinations with pauses."""
        for _ in range(BUSY_LOOKS):
            if not self._is_idle():
                return True
            time.sleep(BUSY_PAUSE)
        return False

    def _stays_idle(self) -> bool:
        """Return whether the device stays idle for as long as it takes to switch to another process."""
        end = time.perf_counter() + TURN_SECONDS
        while time.perf_counter() < end:
            if not self._is_idle(AWAKE_SECONDS):
                return False
        return True

    def _is_idle(self, seconds: float = QUIET_SECONDS) -> bool:
        """Run a small kernel. Returns whether it took less than these seconds, as on an idle device."""
        start = time.perf_counter()
        self._canary.add_(1)
        self._adapter.synchronize()
        return time.perf_counter() - start < seconds
