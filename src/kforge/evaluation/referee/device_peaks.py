"""Measures the peak rates of the device (bandwidth and arithmetic) once, and caches them. (torch)

Other processes lower every rate. So a measurement may first wait some seconds for a quiet machine. A second
measurement can only raise a rate, so that no report contradicts an earlier one by a lower peak.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import torch

from kforge.evaluation.constants import BUSY_SHARE
from kforge.evaluation.processes.machine_load import LoadSnapshot, foreign_share
from kforge.evaluation.referee.measurement_cache import peaks_on
from kforge.evaluation.stages import WORDS
from kforge.records import Peaks

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.referee.measurement_cache import Measurements
    from kforge.evaluation.referee.workers import WorkerFactory

QUIET_SECONDS = 0.3
"""Seconds for which the machine is watched before it is called quiet: about 30 kernel ticks for each processor."""
PATIENCE = 5.0
"""Most seconds that a measurement waits for a quiet machine, if no peaks of a quiet machine are cached."""


def measured_peaks(workers: WorkerFactory, *, fresh: bool = False, patience: float = PATIENCE) -> Peaks:
    """Return the peak rates of the device of these workers, from the cache or measured now; see `calibrated`."""
    platform, device = workers.platform.manifest.name, workers.adapter.describe_device()

    def measure() -> Peaks:
        workers.say(WORDS["calibrate"])
        return workers.adapter.measure_peaks()

    where = peaks_on(platform, device, torch.__version__)
    return calibrated(measure, workers.measurements, where, fresh=fresh, patience=patience)


def calibrated(
    measure: Callable[[], Peaks], cache: Measurements, where: tuple[str, ...], *, fresh: bool, patience: float
) -> Peaks:
    """Return the rates that are cached for `where`, or measure them.

    They are measured if none are cached; if the cached ones are from a busy machine and it is quiet now; or always with
    `fresh`. Of each rate the larger figure is kept, also on disk. `patience` is the most seconds that a measurement
    waits for a quiet machine.
    """
    known = cache.get(Peaks, *where)
    if known is not None and not fresh and (known.quiet or not is_quiet()):
        return known
    if known is None or not known.quiet:
        wait_until_quiet(patience)
    before = LoadSnapshot.take([os.getpid()])
    found = measure()
    quiet = foreign_share(before, LoadSnapshot.take([os.getpid()])) <= BUSY_SHARE
    found = found.model_copy(update={"quiet": quiet})
    peaks = found if known is None else known.joined(found)
    cache.put(peaks, *where)
    return peaks


def is_quiet(seconds: float = QUIET_SECONDS) -> bool:
    """Watch the machine for some time, and return whether other processes used at most BUSY_SHARE of it. True if the
    kernel does not report it."""
    before = LoadSnapshot.take([os.getpid()])
    time.sleep(seconds)
    return foreign_share(before, LoadSnapshot.take([os.getpid()])) <= BUSY_SHARE


def wait_until_quiet(patience: float) -> None:
    """Wait until the machine is quiet, at most about `patience` seconds."""
    end = time.monotonic() + patience
    while time.monotonic() < end and not is_quiet():
        pass
