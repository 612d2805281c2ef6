"""Reads exports of Nsight Compute: `ncu --csv` with `--page raw` or `--page details`. Text before the table is skipped.

The raw page has one row for each launch, below two rows of names and units. The details page has one row for each
metric. With `--metrics` it has the raw page's names; otherwise it has readable names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.errors import ProfileError
from kforge.profiling import counters, tables
from kforge.records import KernelCounters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TOOL = "Nsight Compute"
MAX_LAUNCHES = 10_000
"""Most launches that are read."""
MAX_NAME = 200

_START = ("ID", "Process ID")
"""First columns of the table."""
_DEVICE = "device__attribute_display_name"
_DURATION = "gpu__time_duration.sum"

FIGURES = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": counters.DRAM,
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": counters.L2,
    "l1tex__throughput.avg.pct_of_peak_sustained_active": counters.L1,
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": counters.SM,
    "smsp__issue_active.avg.pct_of_peak_sustained_active": counters.ISSUE,
    "sm__warps_active.avg.pct_of_peak_sustained_active": counters.OCCUPANCY,
    "sm__maximum_warps_per_active_cycle_pct": counters.POSSIBLE_OCCUPANCY,
    "launch__waves_per_multiprocessor": counters.WAVES,
    "launch__registers_per_thread": counters.REGISTERS,
    "launch__grid_size": counters.BLOCKS,
    "launch__block_size": counters.BLOCK_THREADS,
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": counters.LOAD_SECTORS,
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio": counters.STORE_SECTORS,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": counters.LOAD_USE,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct": counters.STORE_USE,
}
"""Metrics of the tool, and kforge's names for them (`counters.py`)."""
SUMS = {
    counters.DRAM_BYTES: ("dram__bytes_read.sum", "dram__bytes_write.sum"),
    counters.SHARED_BYTES: ("launch__shared_mem_per_block_dynamic", "launch__shared_mem_per_block_static"),
}
"""Counters that are the sum of two metrics."""
RATIOS = {
    counters.CONFLICTS: (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    ),
    counters.LOCAL: ("smsp__sass_inst_executed_op_local.sum", "smsp__inst_executed.sum"),
}
"""Counters that are the quotient of two metrics."""
BYTES_A_SECTOR = 32.0
OTHERWISE: dict[str, tuple[tuple[str, ...], float]] = {
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": (
        ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",),
        BYTES_A_SECTOR,
    ),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct": (
        ("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",),
        BYTES_A_SECTOR,
    ),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": (
        (
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
        ),
        1.0,
    ),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": (
        (
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
        ),
        1.0,
    ),
}
"""Other ways in which a file may contain a metric: the sum of these metrics, divided by this number. The tool's own
metric sets use them."""
PIPES = {
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor cores",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": "FP32 pipe",
    "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active": "FP64 pipe",
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active": "integer and logic pipe",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active": "special functions and conversions",
}
"""Metrics of arithmetic units, and their names on the page."""
LIMITS = {
    "launch__occupancy_limit_registers": "registers",
    "launch__occupancy_limit_shared_mem": "shared memory",
    "launch__occupancy_limit_warps": "block size",
    "launch__occupancy_limit_blocks": "blocks a multiprocessor",
    "launch__occupancy_limit_barriers": "barriers",
}
"""Metrics that limit the occupancy, and what they stand for."""
_STALL = ("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio")
"""Beginning and end of the names of stall metrics."""
STALLS = ("long_scoreboard", "short_scoreboard", "barrier", "wait", "mio_throttle", "lg_throttle", "math_pipe_throttle")
"""The stall reasons that kforge requests. Others in a file are read as well."""
RESIDENT = "smsp__average_warp_latency_per_inst_issued.ratio"
"""Cycles that a warp is resident for each instruction that it issues: all stalls plus one cycle for issuing."""

LABELS = {
    "Duration": _DURATION,
    "DRAM Throughput": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "L2 Cache Throughput": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "L1/TEX Cache Throughput": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "One or More Eligible": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Waves Per SM": "launch__waves_per_multiprocessor",
    "Registers Per Thread": "launch__registers_per_thread",
    "Grid Size": "launch__grid_size",
    "Block Size": "launch__block_size",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Block Limit Registers": "launch__occupancy_limit_registers",
    "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
    "Block Limit Warps": "launch__occupancy_limit_warps",
    "Block Limit SM": "launch__occupancy_limit_blocks",
    "Block Limit Barriers": "launch__occupancy_limit_barriers",
    "Warp Cycles Per Issued Instruction": RESIDENT,
}
"""Readable names on the details page, and the metrics that they stand for, as far as they are unambiguous."""


def header_at(lines: Sequence[str]) -> int | None:
    """Return the line where the last table begins; None if there is none. The program may have printed a table, too."""
    start = ",".join(_START)
    found = [i for i, line in enumerate(lines) if line.lstrip("\ufeff")[:40].replace('"', "").startswith(start)]
    return found[-1] if found else None


def read(lines: Sequence[str]) -> tuple[tuple[KernelCounters, ...], str]:
    """Return the kernels, the slowest first, and the device's name (empty if unknown). Raises ProfileError if the lines
    have no table of ncu with metrics or launches."""
    start = header_at(lines)
    if start is None:
        raise ProfileError("it has no table of ncu --csv")
    table = tables.rows([lines[start].lstrip("\ufeff"), *lines[start + 1 :]])
    header = next(table, [])
    body = (row for row in table if len(row) == len(header))
    details = "Metric Name" in header
    if not details and ("Kernel Name" not in header or len(header) < 12):
        raise ProfileError("it is a table of ncu with neither metrics nor launches; use --page raw or --page details")
    device = ""
    launches = []
    for name, told, figures in _by_details(header, body) if details else _by_raw(header, body):
        device = device or told
        launches.append(_launch(name, figures))
    if not launches:
        raise ProfileError("it holds no launch: no kernel was profiled")
    return counters.ranked(launches), device


def _by_raw(header: list[str], body: Iterator[list[str]]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield kernel name, device and metrics of each launch on the raw page."""
    units = next(body, [""] * len(header))
    wanted = [(i, name) for i, name in enumerate(header) if _is_wanted(name)]
    scales = {i: tables.scale(units[i]) for i, _ in wanted}
    kernel = header.index("Kernel Name")
    device = header.index(_DEVICE) if _DEVICE in header else None
    for _, row in zip(range(MAX_LAUNCHES), body, strict=False):
        if row[0].isdecimal():
            found = ((name, scales[i], tables.number(row[i])) for i, name in wanted)
            figures = {name: factor * value for name, factor, value in found if value is not None}
            yield row[kernel], row[device] if device is not None else "", figures


def _by_details(header: list[str], body: Iterator[list[str]]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield kernel name, device (unknown) and metrics of each launch on the details page."""
    at = {name: header.index(name) for name in ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value")}
    launches: dict[str, tuple[str, dict[str, float]]] = {}
    for row in body:
        identity, kernel, label, unit, text = (row[column] for column in at.values())
        if not identity.isdecimal() or (identity not in launches and len(launches) >= MAX_LAUNCHES):
            continue
        name, figures = launches.setdefault(identity, (kernel, {}))
        metric = LABELS.get(label, label)
        # one name stands for a share in one section and for bytes a second in another
        if not _is_wanted(metric) or (unit != "%") == _is_share(metric):
            continue
        value = tables.number(text)
        if value is not None:
            figures.setdefault(metric, tables.scale(unit) * value)
    for name, figures in launches.values():
        yield name, "", figures


_WANTED = {
    _DURATION, RESIDENT, *FIGURES, *PIPES, *LIMITS,
    *(name for parts in (*SUMS.values(), *RATIOS.values()) for name in parts),
    *(name for parts, _ in OTHERWISE.values() for name in parts),
}  # fmt: skip
"""All metrics that are used, besides stalls."""


def _is_wanted(metric: str) -> bool:
    return metric in _WANTED or _stall(metric) is not None


def _is_share(metric: str) -> bool:
    """Return whether a metric is a percentage, by its name."""
    return "pct" in metric.replace(".", "_").split("_")


def _stall(metric: str) -> str | None:
    """Return the stall reason that a metric counts; None for another metric."""
    before, after = _STALL
    return metric[len(before) : -len(after)] if metric.startswith(before) and metric.endswith(after) else None


def _launch(name: str, told: Mapping[str, float]) -> KernelCounters:
    """Return the counters of one launch from its metrics."""
    figures = dict(told)
    for metric, (parts, divisor) in OTHERWISE.items():
        if all(part in figures for part in parts):
            figures.setdefault(metric, sum(figures[part] for part in parts) / divisor)
    found = {ours: figures[theirs] for theirs, ours in FIGURES.items() if theirs in figures}
    for ours, parts in SUMS.items():
        if any(part in figures for part in parts):
            found[ours] = sum(figures.get(part, 0.0) for part in parts)
    for ours, (part, whole) in RATIOS.items():
        if part in figures and whole in figures:
            found[ours] = figures[part] / figures[whole] if figures[whole] else 0.0
    return KernelCounters(
        name=" ".join(name.split())[:MAX_NAME],
        launches=1,
        seconds=figures.get(_DURATION, 0.0),
        share=0.0,
        figures=found,
        stalls=_stalls(figures),
        pipes={ours: figures[theirs] for theirs, ours in PIPES.items() if theirs in figures},
        limits=_limits(figures),
    )


def _stalls(figures: Mapping[str, float]) -> dict[str, float]:
    """Return for each stall reason its share of the time that warps are resident. A warp that was ready is not
    stalled."""
    cycles = {stall: value for metric, value in figures.items() if (stall := _stall(metric)) is not None}
    # without the total, use the sum of the stalls that were counted plus one cycle of issuing
    whole = figures.get(RESIDENT) or sum(cycles.values()) + (0.0 if "selected" in cycles else 1.0)
    waits = {stall: value / whole for stall, value in cycles.items() if stall not in ("selected", "not_selected")}
    return dict(sorted(waits.items(), key=lambda item: -item[1]))


def _limits(figures: Mapping[str, float]) -> tuple[str, ...]:
    """Return what limits the occupancy; empty if it is not limited or unknown."""
    possible = figures.get("sm__maximum_warps_per_active_cycle_pct")
    blocks = {ours: figures[theirs] for theirs, ours in LIMITS.items() if theirs in figures}
    if not blocks or possible is None or possible > 0.99:
        return ()
    least = min(blocks.values())
    return tuple(name for name, value in blocks.items() if value == least)
