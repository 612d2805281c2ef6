"""Computes the least time of a call that the device's peak rates allow, and describes those rates in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.profiling.wording import amount, binary
from kforge.records import CacheLevel, Peaks, Roofline, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator


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


BUSY_MACHINE = "measured while other processes used the machine; when it is quiet, these rates may be higher"
"""Caution beside rates that were measured on a busy machine."""


def rates(peaks: Peaks) -> Iterator[tuple[str, str]]:
    """Yield name and text of each line about the measured rates of a device."""
    yield from cache_rates(peaks)
    yield "Memory", f"{amount(peaks.bytes_per_second, 'B/s')} (all threads)"
    arithmetic = [f"{amount(peaks.flops_per_second, 'FLOP/s')} in float32"]
    arithmetic += [f"{amount(rate, 'FLOP/s')} with {name} precision" for name, rate in peaks.lowered.items()]
    yield "Arithmetic", ", ".join(arithmetic)
    if peaks.hertz is not None:
        yield "Clock", f"{amount(peaks.hertz, 'Hz')}, measured on one thread"
    yield from caution(peaks)


def cache_rates(peaks: Peaks) -> Iterator[tuple[str, str]]:
    """Yield the line about sizes and measured bandwidth of the caches, if the machine reports them."""
    if peaks.caches:
        measured = " (reading, all threads)" if any(cache.bytes_per_second for cache in peaks.caches) else ""
        yield "Caches", ", ".join(map(_cache, peaks.caches)) + measured


def _cache(cache: CacheLevel) -> str:
    many = f"{cache.count} x " if cache.count > 1 else ""
    rate = f" at {amount(cache.bytes_per_second, 'B/s')}" if cache.bytes_per_second is not None else ""
    return f"L{cache.level} {many}{binary(cache.bytes)}{rate}"


def caution(peaks: Peaks) -> Iterator[tuple[str, str]]:
    """Yield a line if the rates were measured on a busy machine."""
    if not peaks.quiet:
        yield "Caution", BUSY_MACHINE


def home(traffic: float, peaks: Peaks) -> CacheLevel | None:
    """Return the first cache level whose caches together can hold this many bytes. None if only memory can."""
    return next((cache for cache in peaks.caches if traffic <= cache.total_bytes), None)
