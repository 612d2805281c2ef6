"""Writes the hardware counters of kernels as lines of text, with explanations of unclear numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.profiling import counters
from kforge.profiling.bottleneck import WAITS, of_kernel
from kforge.profiling.wording import amount, cut, percent, time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.records import KernelCounters

TENSOR_CORES = "tensor cores"
MAX_KERNELS = 2
"""Most kernels that are shown."""
LEAST_KERNEL_SHARE = 0.05
"""A kernel with a smaller share of the time is not shown, unless it is the first."""
MAX_STALLS = 3
LEAST_STALL = 0.05
"""Stall reasons with a smaller share are not shown."""
LEAST_PIPE = 0.02
"""Arithmetic units below this share of their peak are not shown. For tensor cores a smaller share counts as unused,
because that unit also runs a few ordinary instructions."""

CAVEAT = "Counters are taken one kernel at a time, with cold caches."
"""The last line about hardware counters on a profile's page."""


def lines(kernels: Sequence[KernelCounters]) -> list[str]:
    """Return the lines for the most important kernels; empty if there are none."""
    shown = [kernel for kernel in kernels[:MAX_KERNELS] if kernel.share >= LEAST_KERNEL_SHARE or kernel is kernels[0]]
    found: list[str] = []
    for kernel in shown:
        found += ["", cut(_title(kernel, alone=len(kernels) == 1))]
        facts = [*_own_bottleneck(kernel, alone=len(shown) == 1), *_facts(kernel)]
        found += [f"  {name:<20}{cut(fact)}" for name, fact in facts]
    return [*found, "", CAVEAT] if found else []


def _title(kernel: KernelCounters, *, alone: bool) -> str:
    """Return the line with a kernel's name, launches, time and share."""
    share = "" if alone else f", {percent(kernel.share)} of the kernels' time"
    times = f"{kernel.launches} launches, " if kernel.launches > 1 else ""
    return f"Kernel {cut(kernel.name, 60)} ({times}{time(kernel.seconds)}{share})"


def _own_bottleneck(kernel: KernelCounters, *, alone: bool) -> Iterator[tuple[str, str]]:
    """Yield a kernel's bottleneck if several kernels are shown. For a single one it is already at the top of the
    page."""
    if not alone and (named := of_kernel(kernel)):
        yield "bottleneck", named


def _facts(kernel: KernelCounters) -> Iterator[tuple[str, str]]:
    """Yield name and text of each line about one kernel."""
    figures = kernel.figures
    units = ((counters.DRAM, "DRAM"), (counters.L2, "L2"), (counters.L1, "L1"), (counters.SM, "SM"))
    if busy := [f"{name} {percent(figures[unit])}" for unit, name in units if unit in figures]:
        yield "share of peak", ", ".join(busy) + _traffic(kernel)
    yield from _occupancy(kernel)
    stalls = [(stall, share) for stall, share in kernel.stalls.items() if share >= LEAST_STALL][:MAX_STALLS]
    if stalls:
        yield "warps wait for", "; ".join(f"{WAITS.get(stall, stall)} {percent(share)}" for stall, share in stalls)
    yield from _access(figures)
    if counters.CONFLICTS in figures:
        yield "bank conflicts", f"{percent(figures[counters.CONFLICTS])} of the passes over shared memory"
    if counters.LOCAL in figures:
        local = figures[counters.LOCAL]
        yield "local memory", f"{percent(local)} of all instructions (spills)" if local else "none, no spills"
    if arithmetic := ", ".join(_arithmetic(kernel.pipes)):
        yield "arithmetic", arithmetic


def _arithmetic(pipes: dict[str, float]) -> Iterator[str]:
    for name, busy in pipes.items():
        if busy >= LEAST_PIPE:
            yield f"{name} {percent(busy)}"
    if TENSOR_CORES in pipes and pipes[TENSOR_CORES] < LEAST_PIPE:
        yield f"{TENSOR_CORES} not used"


def _traffic(kernel: KernelCounters) -> str:
    moved = kernel.figures.get(counters.DRAM_BYTES)
    if moved is None or not kernel.seconds:
        return ""
    return f"; {amount(moved / kernel.launches, 'B')} a launch from and to DRAM"


def _occupancy(kernel: KernelCounters) -> Iterator[tuple[str, str]]:
    figures = kernel.figures
    parts = []
    if counters.OCCUPANCY in figures:
        parts.append(f"{percent(figures[counters.OCCUPANCY])} achieved")
    if counters.POSSIBLE_OCCUPANCY in figures:
        limited = f" (limited by {' and '.join(kernel.limits)})" if kernel.limits else ""
        parts.append(f"{percent(figures[counters.POSSIBLE_OCCUPANCY])} possible{limited}")
    if counters.WAVES in figures:
        parts.append(f"{figures[counters.WAVES]:.3g} waves of blocks")
    if parts:
        yield "occupancy", ", ".join(parts)
    size = []
    if counters.BLOCKS in figures and counters.BLOCK_THREADS in figures:
        size.append(f"{figures[counters.BLOCKS]:.0f} blocks of {figures[counters.BLOCK_THREADS]:.0f} threads")
    if counters.REGISTERS in figures:
        size.append(f"{figures[counters.REGISTERS]:.0f} registers a thread")
    if counters.SHARED_BYTES in figures:
        size.append(f"{amount(figures[counters.SHARED_BYTES], 'B')} of shared memory a block")
    if size:
        yield "launch", ", ".join(size)


def _access(figures: dict[str, float]) -> Iterator[tuple[str, str]]:
    """Yield lines about how well loads and stores use global memory."""
    found = []
    for what, sectors, use in (
        ("loads", counters.LOAD_SECTORS, counters.LOAD_USE),
        ("stores", counters.STORE_SECTORS, counters.STORE_USE),
    ):
        if figures.get(sectors):  # zero or absent: no access of this kind
            used = f", {percent(figures[use])} of their bytes used" if use in figures else ""
            found.append(f"{what} touch {figures[sectors]:.3g} sectors of 32 B a request{used}")
    if found:
        yield "global access", "; ".join(found)
        # where the used share is not known, the reader needs the scale
        if not {counters.LOAD_USE, counters.STORE_USE} & figures.keys():
            yield "", "coalesced are 4 where each thread moves 4 bytes, 16 where it moves 16"
