"""NVIDIA's profilers: Nsight Compute reads hardware counters, and Nsight Systems records launches and the host's calls.

Both run inside the sandbox, around a worker, and may be refused there: by default the driver gives counters to
administrators only, and a worker is unprivileged. A profiler that does not work raises no error; it reports the reason.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from kforge.platforms.contracts import NoProfiler, Profiler

METRICS = (
    "gpu__time_duration.sum",
    # how busy each unit is
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    # occupancy; what limits it comes with every launch
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    # stall reasons, and the latency of which each is a part
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__average_warp_latency_per_inst_issued.ratio",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
    # coalescing, bank conflicts, spills
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "smsp__sass_inst_executed_op_local.sum",
    "smsp__inst_executed.sum",
    # arithmetic
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
)
"""The metrics that a digest uses. No others are recorded, because every metric costs a replay of the kernel."""
MAX_LAUNCHES = 48

COUNTERS, TIMELINE = "Nsight Compute", "Nsight Systems"
_ROOT = Path("/")
_PLACES = ("usr/local/cuda/bin/{name}", "opt/nvidia/nsight-*/*/{name}", "opt/nvidia/nsight-*/*/bin/{name}")
_PARAMETERS = Path("/proc/driver/nvidia/params")
_ADMINISTRATORS_ONLY = re.compile(r"^RmProfilingAdminOnly:\s*1\s*$", re.MULTILINE)
RESTRICTED = "the driver gives counters to administrators only; --import reads theirs"
"""Reason for a refusal of counters. With NVreg_RestrictProfilingToAdminUsers=0 the driver gives counters to every
user."""

_TIMELINE_REPORTS = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum")
_TIMELINE_SCRIPT = """
nsys=$1; shift
"$nsys" profile --trace=cuda --sample=none --cpuctxsw=none --capture-range=cudaProfilerApi --capture-range-end=stop \
    --force-overwrite=true --output="$TMPDIR/trace" "$@" &&
exec "$nsys" stats --quiet --force-export=true --format csv {reports} "$TMPDIR/trace.nsys-rep"
"""
"""Shell script that records a trace and exports it. The export is made inside the sandbox, because only the worker's
output leaves the sandbox."""


def find() -> tuple[Profiler | NoProfiler, ...]:
    """Return the profilers that report more than torch's own, the most informative one first."""
    return _compute(), _systems()


def _compute() -> Profiler | NoProfiler:
    command = find_command("ncu")
    if command is None:
        return NoProfiler(COUNTERS, "ncu is not installed")
    if restricted():
        return NoProfiler(COUNTERS, RESTRICTED)
    return Profiler(COUNTERS, counting(command), why_not)


def counting(command: str) -> tuple[str, ...]:
    """Return the command line that is put before a program to read its counters."""
    return (
        command, "--csv", "--page", "raw", "--metrics", ",".join(METRICS),
        # locking the clocks needs privileges, and would profile the device in another state than the timed one
        "--clock-control", "none",
        # record only what runs inside `recording`: neither the code that makes inputs nor a compiler's process
        "--profile-from-start", "off", "--target-processes", "application-only",
        "--launch-count", str(MAX_LAUNCHES),
    )  # fmt: skip


def _systems() -> Profiler | NoProfiler:
    command = find_command("nsys")
    if command is None:
        return NoProfiler(TIMELINE, "nsys is not installed")
    reports = " ".join(f"--report {report}" for report in _TIMELINE_REPORTS)
    script = _TIMELINE_SCRIPT.format(reports=reports)
    return Profiler(TIMELINE, ("sh", "-c", script, "sh", command), why_not)


def restricted() -> bool:
    """Return whether the driver gives counters to administrators only."""
    try:
        return _ADMINISTRATORS_ONLY.search(_PARAMETERS.read_text()) is not None
    except OSError:  # the driver does not say
        return False


def find_command(name: str) -> str | None:
    """Return the path of a command: on PATH, in the CUDA toolkit, or in its own package's folder, newest version first.
    None if it is not installed."""
    if (found := shutil.which(name)) is not None:
        return found
    places = (place for form in _PLACES for place in sorted(_ROOT.glob(form.format(name=name)), reverse=True))
    return next((str(place) for place in places if place.is_file()), None)


_ERROR = re.compile(r"^==ERROR==\s*(.+)$", re.MULTILINE)


def why_not(output: str) -> str | None:
    """Return the profiler's own error in its output, in one line, or None. Errors of the profiled program do not
    count."""
    if "ERR_NVGPUCTRPERM" in output:
        return RESTRICTED
    for line in _ERROR.findall(output[-200_000:]):
        if "application returned an error" not in line:
            return " ".join(line.split())[:200]
    return None
