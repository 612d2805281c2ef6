"""Computes the least time that the device's peak rates allow for a call."""

from __future__ import annotations

from kforge.records import Peaks, Roofline, Workload


def roofline(workload: Workload, peaks: Peaks, precision: str = "strict") -> Roofline:
    """The floors of memory traffic and of arithmetic for one call, at the peaks measured on the device.

    Arithmetic counts in the precision that the program declared.
    """
    return Roofline(
        peaks=peaks,
        memory_seconds=workload.bytes_moved / peaks.bytes_per_second,
        compute_seconds=workload.flops / peaks.flops(precision),
    )
