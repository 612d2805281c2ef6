"""Names what limits a program in one line, by fixed rules over the measurements.

The rules look at the whole call first (does the device wait for the host?), then at the kernel that takes most of the
time. Wasted work is named before busy units, because a unit that is busy with waste is not what should be fixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.profiling.counters import (
    BLOCKS,
    CONFLICTS,
    DRAM,
    ISSUE,
    L1,
    L2,
    LOAD_SECTORS,
    LOAD_USE,
    LOCAL,
    OCCUPANCY,
    POSSIBLE_OCCUPANCY,
    SM,
    STORE_SECTORS,
    STORE_USE,
    WAVES,
)
from kforge.profiling.rows import busy_seconds, is_transfer
from kforge.profiling.wording import cut, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kforge.records import HotSpot, KernelCounters, Roofline

IDLE_SHARE = 0.4
"""If the device is idle for more than this share of a call, launching from the host is named as the bottleneck."""
TRANSFER_SHARE = 0.3
"""If copies between host and device take more than this share of the device's time, they are named as the
bottleneck."""
BUSY = 0.6
"""A unit above this share of its peak is the limit. If there is none, latency is. Nsight Compute uses the same
value."""
WASTED_USE, SCATTERED_SECTORS = 0.6, 6.0
"""Access counts as scattered if less than WASTED_USE of the bytes is used, and a request touches more than
SCATTERED_SECTORS sectors. Few sectors with little use are a broadcast, which is cheap. 16 sectors with full use are
vector loads, which are good."""
SURELY_SCATTERED = 20.0
"""Sectors per request above which access counts as scattered if the used share of the bytes was not measured."""
CONFLICT_SHARE = 0.3
"""If bank conflicts cause more than this share of the passes over shared memory, they may be named as the
bottleneck."""
LOCAL_SHARE = 0.05
"""If more than this share of the instructions access local memory, it may be named as the bottleneck."""
LOW_OCCUPANCY = 0.4
"""Occupancy below this share is named as a cause of latency."""
FEW_WAVES = 1.0
"""If the blocks of a launch fill the device fewer times than this, parallelism is too low."""

UNITS = {DRAM: "DRAM", L2: "L2 cache", L1: "L1 cache and shared memory"}
"""Names of the memory units as a profile's page shows them."""
MEMORY_WAITS = ("long_scoreboard", "lg_throttle")
"""Stall reasons that mean waiting for global memory."""
SHARED_WAITS = ("short_scoreboard", "mio_throttle")
"""Stall reasons that mean waiting for shared memory."""
WAITS = {
    "long_scoreboard": "global or local memory",
    "short_scoreboard": "shared memory or special functions",
    "barrier": "__syncthreads",
    "wait": "the fixed latency of instructions",
    "mio_throttle": "room in the queue to shared memory",
    "lg_throttle": "room in the queue to global memory",
    "tex_throttle": "room in the queue to the texture unit",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "no_instruction": "instructions to be fetched",
    "imc_miss": "constants to be fetched",
    "branch_resolving": "branches",
    "dispatch_stall": "the dispatcher",
    "membar": "a memory fence",
    "drain": "stores at the end",
    "sleeping": "a sleep to end",
    "gmma": "asynchronous matrix products",
}
"""What a warp waits for, by the profiler's name of the stall reason."""


def name_bottleneck(
    *,
    hot_spots: Sequence[HotSpot],
    kernels: Sequence[KernelCounters],
    seconds: float | None,
    roofline: Roofline | None,
) -> str:
    """Return the line that names the bottleneck; empty if no rule applies. `seconds` is the time of a call without a
    profiler."""
    busy = busy_seconds(hot_spots)
    if busy is not None and seconds is not None and (idle := 1 - busy / seconds) >= IDLE_SHARE:
        return f"launch bound: the device is idle {percent(idle)} of a call"
    device = busy or sum(spot.seconds for spot in hot_spots)
    transfers = sum(spot.seconds for spot in hot_spots if is_transfer(spot))
    if device and transfers / device >= TRANSFER_SHARE:
        return f"host transfers: copies between host and device take {percent(transfers / device)} of the device's time"
    if kernels:
        first = kernels[0]
        named = of_kernel(first)
        return f"{named} ({cut(first.name, 40)})" if named and len(kernels) > 1 else named
    if roofline is not None and seconds is not None and BUSY <= (share := roofline.floor_seconds / seconds) <= 1:
        return f"{roofline.bound} bound: {percent(share)} of the roofline is reached"
    return ""


def of_kernel(kernel: KernelCounters) -> str:
    """Return what limits one kernel; empty if too few counters were measured."""
    busy = {unit: kernel.figures[unit] for unit in (DRAM, L2, L1, SM) if unit in kernel.figures}
    if not busy:
        return ""
    most = max(busy, key=lambda unit: busy[unit])
    waits = next(iter(kernel.stalls), "")
    if (most != SM or waits in MEMORY_WAITS) and (scattered := _scattered(kernel.figures)):
        return scattered
    if (local := kernel.figures.get(LOCAL, 0.0)) >= LOCAL_SHARE:
        return f"local memory: spilled registers or late-indexed arrays, {percent(local)} of all instructions"
    if most in (DRAM, L2) and busy[most] >= BUSY:
        return f"memory bound: {UNITS[most]} at {percent(busy[most])} of peak"
    conflicts = kernel.figures.get(CONFLICTS, 0.0)
    if conflicts >= CONFLICT_SHARE and (most == L1 or waits in SHARED_WAITS):
        return f"shared memory bank conflicts: {percent(conflicts)} of the passes over it"
    if busy[most] >= BUSY:
        return _compute(kernel) if most == SM else f"memory bound: {UNITS[most]} at {percent(busy[most])} of peak"
    return _latency(kernel)


def _scattered(figures: Mapping[str, float]) -> str:
    """Return a line about uncoalesced access; empty if there is none."""
    found = []
    for what, sectors, use in (("loads", LOAD_SECTORS, LOAD_USE), ("stores", STORE_SECTORS, STORE_USE)):
        touched, used = figures.get(sectors, 0.0), figures.get(use)
        if touched >= SCATTERED_SECTORS and used is not None and used <= WASTED_USE:
            found.append(f"{what} touch {touched:.3g} sectors a request and use {percent(used)} of them")
        elif touched >= SURELY_SCATTERED and used is None:
            found.append(f"{what} touch {touched:.3g} sectors a request")
    return f"uncoalesced access: {', '.join(found)}" if found else ""


def _compute(kernel: KernelCounters) -> str:
    """Return a line for a kernel whose multiprocessors are busy: which arithmetic unit, or instruction issue, is the
    limit."""
    pipe = max(kernel.pipes, key=lambda name: kernel.pipes[name], default="")
    if pipe and kernel.pipes[pipe] >= BUSY:
        return f"compute bound: {pipe} at {percent(kernel.pipes[pipe])} of peak"
    issue = kernel.figures.get(ISSUE, 0.0)
    if issue >= BUSY:
        return f"instruction bound: {percent(issue)} of the issue slots are used, by no single pipe"
    return f"compute bound: multiprocessors at {percent(kernel.figures[SM])} of peak"


def _latency(kernel: KernelCounters) -> str:
    """Return a line for a kernel in which no unit is busy, with the likely cause."""
    figures, cause = kernel.figures, ""
    waves, achieved, possible = (figures.get(name) for name in (WAVES, OCCUPANCY, POSSIBLE_OCCUPANCY))
    if waves is not None and waves < FEW_WAVES:
        blocks = f"{figures[BLOCKS]:.0f} blocks" if BLOCKS in figures else "the launch"
        cause = f"too little parallelism, {blocks} fill {percent(waves)} of the device"
    elif possible is not None and possible <= LOW_OCCUPANCY:
        cause = f"low occupancy, {percent(possible)} at most{', limited by ' * bool(kernel.limits)}"
        cause += " and ".join(kernel.limits)
    elif achieved is not None and possible is not None and achieved <= LOW_OCCUPANCY:
        cause = (
            f"low occupancy, {percent(achieved)} of the {percent(possible)} that is possible: uneven or short blocks"
        )
    elif kernel.stalls:
        stall, share = next(iter(kernel.stalls.items()))
        cause = f"warps wait for {WAITS.get(stall, stall)} {percent(share)} of their time"
    return f"latency bound: {cause}" if cause else "latency bound: no unit is busy"
