"""Computes the least time of a call that the device's peak rates allow."""

from __future__ import annotations

from kforge.records import Peaks, Roofline, Workload


def roofline(workload: Workload, peaks: Peaks, precision: str = "strict") -> Roofline:
    """Return the least time for memory traffic and the least time for arithmetic of one call, at the device's measured
    peaks.

    The arithmetic peak is that of the declared precision.
    """
    return Roofline(
        peaks=peaks,
        memory_seconds=workload.bytes_moved / peaks.bytes_per_second,
        compute_seconds=workload.flops / peaks.flops(precision),
    )
