"""Writes a profile as one page of text, for a reader who must choose one bottleneck.

Only measured numbers that help to act are printed. These are left out because they mislead: arithmetic rates if torch
does not count the FLOPs, rows below one percent of the time, a share of the roofline above 100 %, and the device's idle
time in the profiled run, in which every call waits and the profiler slows the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.profiling import kernel_lines
from kforge.profiling.authored import page as authored_page
from kforge.profiling.bottleneck import name_bottleneck
from kforge.profiling.roofline import cache_rates, caution, home
from kforge.profiling.rows import IDLE, busy_seconds
from kforge.profiling.wording import amount, binary, cut, percent, time
from kforge.records import HotSpot, Profile, Roofline, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.records import AuthoredCode, CacheLevel, KernelCounters, Peaks

LEAST_ROW_SHARE = 0.01
"""Rows with a smaller share of the time are not shown."""
MAX_ROWS = 16
MAX_NOTES = 12
ROWS_BESIDE_COUNTERS, NOTES_BESIDE_COUNTERS = 8, 6
"""Most table rows and most notes on a page that also shows hardware counters or the inside of kernels."""

NOTE_WIDTH = 140

A_CALL = "self time a call, in the profiled run"
"""Description of the table's times, which its heading shows."""


def digest(
    *,
    tool: str,
    seconds: float,
    hot_spots: Sequence[HotSpot],
    roofline: Roofline,
    workload: Workload,
    kernels: Sequence[KernelCounters] = (),
    notes: Sequence[str] = (),
    authored: AuthoredCode | None = None,
) -> Profile:
    """Return the profile of a program, with its page of text.

    `seconds` is the time of one call without a profiler. The times of the hot spots are from the profiled run.
    `authored` tells where the time goes inside kernels, if it was sampled.
    """
    bottleneck = name_bottleneck(hot_spots=hot_spots, kernels=kernels, seconds=seconds, roofline=roofline)
    facts = [("Profiled with", tool), *_named(bottleneck), ("Time a call", time(seconds))]
    facts += [*_idle(seconds, hot_spots), *roof(seconds, roofline, workload)]
    return Profile(
        tool=tool,
        seconds=seconds,
        hot_spots=tuple(hot_spots),
        roofline=roofline,
        digest_text=page(facts, hot_spots, A_CALL, kernels, notes, authored),
        kernels=tuple(kernels),
        bottleneck=bottleneck,
        authored=authored,
    )


def page(
    facts: Sequence[tuple[str, str]],
    hot_spots: Sequence[HotSpot],
    of_what: str,
    kernels: Sequence[KernelCounters],
    notes: Sequence[str],
    authored: AuthoredCode | None = None,
) -> str:
    """Return the page: facts, hot spots (`of_what` describes their times), inside of kernels, counters, notes."""
    crowded = bool(kernels) or authored is not None
    lines = [f"{name:<22}{cut(fact)}" for name, fact in facts]
    shown = [spot for spot in without_idle(hot_spots) if spot.share >= LEAST_ROW_SHARE]
    if shown:
        lines += ["", f"Hot spots ({of_what})", f"{'share':>7} {'time':>10} {'calls':>6}  name"]
        lines += [_row(spot) for spot in shown[: ROWS_BESIDE_COUNTERS if crowded else MAX_ROWS]]
    if authored is not None:
        lines += authored_page.lines(authored)
    lines += kernel_lines.lines(kernels)
    if notes:
        lines += ["", "Notes"]
        lines += [f"- {cut(note, NOTE_WIDTH)}" for note in notes[: NOTES_BESIDE_COUNTERS if crowded else MAX_NOTES]]
    return "\n".join(lines) + "\n"


def _named(bottleneck: str) -> Iterator[tuple[str, str]]:
    """Yield the line with the bottleneck, if one is known."""
    if bottleneck:
        yield "Bottleneck", bottleneck


def _idle(seconds: float, hot_spots: Sequence[HotSpot]) -> Iterator[tuple[str, str]]:
    """Yield the line that says how long the device is idle in a call, for a profile of a device."""
    busy = busy_seconds(hot_spots)
    if busy is not None:
        launches = sum(spot.calls for spot in hot_spots if spot.name != IDLE)
        idle = max(0.0, 1 - busy / seconds)
        yield "Device idle", f"{percent(idle)} of a call: {launches} kernels and copies take {time(busy)} of it"


def without_idle(hot_spots: Sequence[HotSpot]) -> list[HotSpot]:
    """Return the rows without the device's idle time. Their shares are then of the device's busy time."""
    rows = [spot for spot in hot_spots if spot.name != IDLE]
    total = sum(spot.seconds for spot in rows)
    if len(rows) == len(hot_spots) or not total:
        return rows
    return [spot.model_copy(update={"share": spot.seconds / total}) for spot in rows]


def roof(seconds: float | None, roofline: Roofline, workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield lines about the roofline, and about how far a call is from it if its time is known."""
    peaks, traffic, flops = roofline.peaks, workload.bytes_moved, workload.flops
    bandwidth, throughput = peaks.bytes_per_second, peaks.flops_per_second
    yield "Device peaks", f"{amount(bandwidth, 'B/s')}, {amount(throughput, 'FLOP/s')} ({peaks.device})"
    yield from cache_rates(peaks)
    yield from caution(peaks)
    yield "Roofline floor", f"{time(roofline.floor_seconds)}, {roofline.bound} bound"
    yield "  memory", f"{time(roofline.memory_seconds)} to move {amount(traffic, 'B')}, all data once"
    if flops:
        yield (
            "  compute",
            f"{time(roofline.compute_seconds)} for {amount(flops, 'FLOP')} of matmul-like operators",
        )
    if seconds is not None:
        yield from _achieved(seconds, roofline, workload)
    if flops and traffic:
        balance = f"the device is balanced at {throughput / bandwidth:.3g}"
        yield "Arithmetic intensity", f"{flops / traffic:.3g} FLOP/B; {balance}"


def _achieved(seconds: float, roofline: Roofline, workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield lines about the share of the roofline that a call reaches, and its rates."""
    traffic, flops, peaks = workload.bytes_moved, workload.flops, roofline.peaks
    cache = home(traffic, peaks)
    if seconds >= roofline.floor_seconds:
        yield "Share of the roof", f"{roofline.floor_seconds / seconds:.1%}"
    else:
        yield "Share of the roof", f"above it: {_why_above(roofline, cache)}"
    if peaks.caches:
        yield "Data of a call", f"{amount(traffic, 'B')}, all of it once: {_room(cache, peaks)}"
    yield "Achieved", _rate_reached(traffic / seconds, peaks, cache) + _arithmetic(flops / seconds, peaks)


def _rate_reached(rate: float, peaks: Peaks, cache: CacheLevel | None) -> str:
    """Return the text about the bandwidth that a call reaches. On a host, it includes the share of the bandwidth of
    memory, and of the cache that can hold the data."""
    if not peaks.caches:
        return amount(rate, "B/s")
    shares = [f"{percent(rate / peaks.bytes_per_second)} of memory's"]
    if cache is not None and cache.bytes_per_second is not None:
        shares.append(f"{percent(rate / cache.bytes_per_second)} of L{cache.level}'s")
    return f"{amount(rate, 'B/s')} ({', '.join(shares)})"


def _why_above(roofline: Roofline, cache: CacheLevel | None) -> str:
    """Return the likely reasons why a call takes less time than the roofline allows."""
    if roofline.bound == "compute":
        return "less arithmetic than the reference's operators count, or the peak was measured too low"
    if cache is not None:
        return f"the data of a call has room in L{cache.level}, so memory does not bind"
    return "some of the data stays in a cache, is not read at all, or the bandwidth was measured too low"


def _room(cache: CacheLevel | None, peaks: Peaks) -> str:
    """Return the text about the first cache that can hold the data of a call."""
    if cache is None:
        last = peaks.caches[-1]
        return f"more than L{last.level} holds ({binary(last.total_bytes)})"
    return f"has room in L{cache.level} ({binary(cache.total_bytes)})"


def _arithmetic(rate: float, peaks: Peaks) -> str:
    """Return the text about the arithmetic rate that a call reaches; empty if torch counts no operations."""
    share = f" ({percent(rate / peaks.flops_per_second)} of the peak)" if peaks.caches else ""
    return f", {amount(rate, 'FLOP/s')}{share}" if rate else ""


def _row(spot: HotSpot) -> str:
    return f"{spot.share:>7.1%} {time(spot.seconds):>10} {spot.calls:>5}x  {cut(spot.name)}"
