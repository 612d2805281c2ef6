"""A profile on one page, for a reader who must choose one bottleneck.

Only what was measured and can be acted on is printed. Left out because it misleads: arithmetic figures of a
workload whose FLOPs torch does not count, rows below one percent of the time, and the share of a roof that the
program stands above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.records import HotSpot, Profile, Roofline, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEAST_SHARE = 0.01
MAX_ROWS = 16
MAX_NOTES = 12
MAX_WIDTH = 110


def digest(
    *,
    tool: str,
    seconds: float,
    hot_spots: Sequence[HotSpot],
    roofline: Roofline,
    workload: Workload,
    notes: Sequence[str] = (),
) -> Profile:
    """The profile record of a program that takes `seconds` a call, with its page of plain text.

    `seconds` is timed without a profiler; the times of the hot spots are from the profiled run.
    """
    facts = [("Profiled with", tool), ("Time a call", _time(seconds)), *_roof(seconds, roofline, workload)]
    page = [f"{name:<22}{_cut(fact)}" for name, fact in facts]
    rows = [_row(spot) for spot in hot_spots if spot.share >= LEAST_SHARE][:MAX_ROWS]
    if rows:
        page += ["", "Hot spots (self time a call, in the profiled run)"]
        page += [f"{'share':>7} {'time':>10} {'calls':>6}  name", *rows]
    if notes:
        page += ["", "Notes", *(f"- {_cut(note)}" for note in notes[:MAX_NOTES])]
    return Profile(
        tool=tool,
        seconds=seconds,
        hot_spots=tuple(hot_spots),
        roofline=roofline,
        digest_text="\n".join(page) + "\n",
    )


def _roof(seconds: float, roofline: Roofline, workload: Workload) -> Iterator[tuple[str, str]]:
    peaks, traffic, flops = roofline.peaks, workload.bytes_moved, workload.flops
    bandwidth, throughput = peaks.bytes_per_second, peaks.flops_per_second
    yield "Device peaks", f"{_amount(bandwidth, 'B/s')}, {_amount(throughput, 'FLOP/s')} ({peaks.device})"
    yield "Roofline floor", f"{_time(roofline.floor_seconds)}, {roofline.bound} bound"
    yield "  memory", f"{_time(roofline.memory_seconds)} to move {_amount(traffic, 'B')}, all data once"
    if flops:
        yield (
            "  compute",
            f"{_time(roofline.compute_seconds)} for {_amount(flops, 'FLOP')} of matmul-like operators",
        )
    if seconds >= roofline.floor_seconds:
        yield "Share of the roof", f"{roofline.floor_seconds / seconds:.1%}"
    elif roofline.bound == "memory":
        yield "Share of the roof", "above it: the data stays in a cache, memory does not bind"
    else:
        yield "Share of the roof", "above it: fewer operations are done than the reference does"
    yield (
        "Achieved",
        _amount(traffic / seconds, "B/s") + (f", {_amount(flops / seconds, 'FLOP/s')}" if flops else ""),
    )
    if flops and traffic:
        balance = f"the device is balanced at {throughput / bandwidth:.3g}"
        yield "Arithmetic intensity", f"{flops / traffic:.3g} FLOP/B; {balance}"


def _row(spot: HotSpot) -> str:
    return f"{spot.share:>7.1%} {_time(spot.seconds):>10} {spot.calls:>5}x  {_cut(spot.name)}"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-6:.4g} µs"


def _amount(amount: float, unit: str) -> str:
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if amount >= size:
            return f"{amount / size:.4g} {prefix}{unit}"
    return f"{amount:.4g} {unit}"


def _cut(text: str) -> str:
    """One line of bounded width: kernel names of templates run to thousands of characters."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_WIDTH else line[: MAX_WIDTH - 1] + "…"
