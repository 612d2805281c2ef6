"""Measures the peak rates of the device (bandwidth and arithmetic) once, and caches them. (torch)"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from kforge.evaluation.constants import BUSY_SHARE
from kforge.evaluation.processes.machine_load import LoadSnapshot, foreign_share
from kforge.evaluation.stages import WORDS
from kforge.records import Peaks

if TYPE_CHECKING:
    from kforge.evaluation.referee.workers import WorkerFactory


def measured_peaks(workers: WorkerFactory, *, fresh: bool = False) -> Peaks:
    """Return the device's peak rates, from the cache or, with `fresh`, measured again.

    They are cached on disk only if the machine was quiet while they were measured.
    """
    where = (workers.adapter.describe_device(), torch.__version__)
    known = None if fresh else workers.measurements.get(Peaks, *where)
    if known is None:
        workers.say(WORDS["calibrate"])
        before = LoadSnapshot.take([os.getpid()])
        known = workers.adapter.measure_peaks()
        quiet = foreign_share(before, LoadSnapshot.take([os.getpid()])) <= BUSY_SHARE
        workers.measurements.put(known, *where, lasting=quiet)
    return known
