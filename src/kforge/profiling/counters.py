"""Names of the hardware counters that the page of a profile uses, independent of the tool that measured them.

Shares are between 0 and 1, where 1 is the peak. Everything else is in base units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.records import KernelCounters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DRAM, L2, L1, SM = "dram", "l2", "l1", "sm"
"""How busy each unit is, as a share of its peak."""
ISSUE = "issue"
"""Share of cycles in which a scheduler has an instruction to issue."""
DRAM_BYTES = "dram_bytes"
"""Bytes read from and written to device memory, in all launches together."""
OCCUPANCY, POSSIBLE_OCCUPANCY = "occupancy", "possible_occupancy"
"""Resident warps as a share of the most that a multiprocessor can hold: achieved, and possible for this kernel."""
WAVES = "waves"
"""How many times the blocks of a launch fill the whole device."""
REGISTERS, SHARED_BYTES, BLOCKS, BLOCK_THREADS = "registers", "shared_bytes", "blocks", "block_threads"
LOAD_SECTORS, STORE_SECTORS = "load_sectors", "store_sectors"
"""Sectors of 32 bytes that one request of a warp to global memory touches: 4 for 4 bytes per thread, 16 for 16
bytes."""
LOAD_USE, STORE_USE = "load_use", "store_use"
"""Share of the bytes that loads and stores of global memory move (in sectors of 32 bytes) that the program asked
for."""
CONFLICTS = "conflicts"
"""Share of the passes over shared memory that are needed only because of bank conflicts."""
LOCAL = "local"
"""Share of all instructions that access local memory: spilled registers, and arrays indexed at run time."""

SUMMED = frozenset({DRAM_BYTES})
"""Counters that are added over the launches of a kernel."""
GEOMETRY = frozenset({WAVES, REGISTERS, SHARED_BYTES, BLOCKS, BLOCK_THREADS})
"""Counters that are taken from the longest launch. All others are averaged over the launches, weighted by time."""


def combined(name: str, launches: Sequence[KernelCounters]) -> KernelCounters:
    """Return one record for all launches of a kernel. Its share of the time is 0; `ranked` fills it in."""
    longest = max(launches, key=lambda one: one.seconds)
    names = dict.fromkeys(figure for one in launches for figure in one.figures)
    figures = {}
    for figure in names:
        values = [(one.figures[figure], one.seconds) for one in launches if figure in one.figures]
        if figure in SUMMED:
            figures[figure] = sum(value for value, _ in values)
        elif figure in GEOMETRY:
            figures[figure] = longest.figures.get(figure, values[0][0])
        else:
            figures[figure] = _mean(values)
    return KernelCounters(
        name=name,
        launches=sum(one.launches for one in launches),
        seconds=sum(one.seconds for one in launches),
        share=0.0,
        figures=figures,
        stalls=_means((one.stalls, one.seconds) for one in launches),
        pipes=_means((one.pipes, one.seconds) for one in launches),
        limits=longest.limits,
    )


def ranked(kernels: Iterable[KernelCounters]) -> tuple[KernelCounters, ...]:
    """Return one record for each kernel name, with its share of the time, the largest first."""
    by_name: dict[str, list[KernelCounters]] = {}
    for kernel in kernels:
        by_name.setdefault(kernel.name, []).append(kernel)
    merged = [combined(name, launches) for name, launches in by_name.items()]
    total = sum(kernel.seconds for kernel in merged) or 1.0
    merged.sort(key=lambda kernel: -kernel.seconds)
    return tuple(kernel.model_copy(update={"share": kernel.seconds / total}) for kernel in merged)


def joined(files: Iterable[Sequence[KernelCounters]]) -> tuple[KernelCounters, ...]:
    """Return the counters of several files together. If a kernel is in two files, the second adds only what the first
    lacks."""
    by_name: dict[str, KernelCounters] = {}
    for kernel in (kernel for kernels in files for kernel in kernels):
        known = by_name.setdefault(kernel.name, kernel)
        # totals are for the number of launches in the first file
        sums = {
            name: kernel.figures[name] * known.launches / kernel.launches for name in SUMMED & kernel.figures.keys()
        }
        kernel = kernel.model_copy(update={"figures": {**kernel.figures, **sums}})
        more = {table: {**getattr(kernel, table), **getattr(known, table)} for table in ("figures", "stalls", "pipes")}
        update = {**more, "limits": known.limits or kernel.limits, "seconds": known.seconds or kernel.seconds}
        by_name[kernel.name] = known.model_copy(update=update)
    return ranked(by_name.values())


def _means(weighted: Iterable[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """Return the weighted mean of each entry of several tables, the largest first."""
    values: dict[str, list[tuple[float, float]]] = {}
    for table, weight in weighted:
        for name, value in table.items():
            values.setdefault(name, []).append((value, weight))
    means = {name: _mean(of_one) for name, of_one in values.items()}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _mean(values: Sequence[tuple[float, float]]) -> float:
    """Return the mean of pairs of value and weight."""
    weights = sum(weight for _, weight in values)
    if not weights:
        return values[0][0]
    return sum(value * weight for value, weight in values) / weights
