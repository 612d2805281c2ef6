"""The page that the performance analysis agent reads, word for word."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.profiling import digest, roofline
from kforge.profiling.rows import IDLE
from kforge.records import CacheLevel, HotSpot, KernelCounters, Peaks, Profile, Workload

PEAKS = Peaks(device="Some CPU, 2 threads", bytes_per_second=20e9, flops_per_second=200e9)
SPOTS = (
    HotSpot(name="aten::addmm", calls=1, seconds=6.2e-3, share=0.62),
    HotSpot(name="outside torch operators (authored kernels, Python)", calls=1, seconds=3.4e-3, share=0.34),
    HotSpot(name="aten::relu", calls=12, seconds=350e-6, share=0.035),
    HotSpot(name="aten::view", calls=3, seconds=50e-6, share=0.005),
)

MATMUL = """\
Profiled with         torch.profiler
Time a call           10 ms
Device peaks          20 GB/s, 200 GFLOP/s (Some CPU, 2 threads)
Roofline floor        5 ms, compute bound
  memory              1.6 ms to move 32 MB, all data once
  compute             5 ms for 1 GFLOP of matmul-like operators
Share of the roof     50.0%
Achieved              3.2 GB/s, 100 GFLOP/s
Arithmetic intensity  31.2 FLOP/B; the device is balanced at 10

Hot spots (self time a call, in the profiled run)
  share       time  calls  name
  62.0%     6.2 ms     1x  aten::addmm
  34.0%     3.4 ms     1x  outside torch operators (authored kernels, Python)
   3.5%     350 µs    12x  aten::relu

Notes
- threads: 2
"""

ELEMENTWISE = """\
Profiled with         torch.profiler
Bottleneck            memory bound: 80% of the roofline is reached
Time a call           2 ms
Device peaks          20 GB/s, 200 GFLOP/s (Some CPU, 2 threads)
Roofline floor        1.6 ms, memory bound
  memory              1.6 ms to move 32 MB, all data once
Share of the roof     80.0%
Achieved              16 GB/s
"""


DEVICE = """\
Profiled with         torch.profiler and Nsight Compute
Bottleneck            memory bound: DRAM at 91% of peak (softmax)
Time a call           100 µs
Device idle           10% of a call: 3 kernels and copies take 90 µs of it
Device peaks          20 GB/s, 200 GFLOP/s (Some CPU, 2 threads)
Roofline floor        80 µs, memory bound
  memory              80 µs to move 1.6 MB, all data once
Share of the roof     80.0%
Achieved              16 GB/s

Hot spots (self time a call, in the profiled run)
  share       time  calls  name
  88.9%      80 µs     1x  softmax
  11.1%      10 µs     2x  fill

Kernel softmax (80 µs, 89% of the kernels' time)
  bottleneck          memory bound: DRAM at 91% of peak
  share of peak       DRAM 91%, L2 50%, L1 30%, SM 20%; 1.5 MB a launch from and to DRAM
  occupancy           61% achieved, 62% possible (limited by registers and shared memory)
  global access       loads touch 16 sectors of 32 B a request, 100% of their bytes used
  bank conflicts      4.0% of the passes over shared memory
  local memory        none, no spills
  arithmetic          FP32 pipe 31%, tensor cores not used

Kernel fill (2 launches, 10 µs, 11% of the kernels' time)
  bottleneck          latency bound: no unit is busy
  share of peak       DRAM 40%, SM 20%

Counters are taken one kernel at a time, with cold caches.

Notes
- a word
"""
SOFTMAX = KernelCounters(
    name="softmax",
    launches=1,
    seconds=80e-6,
    share=8 / 9,
    figures={
        "dram": 0.91, "l2": 0.5, "l1": 0.3, "sm": 0.2, "dram_bytes": 1.5e6, "occupancy": 0.61,
        "possible_occupancy": 0.62, "load_sectors": 16, "load_use": 1.0, "store_sectors": 0, "conflicts": 0.04,
        "local": 0,
    },
    pipes={"FP32 pipe": 0.31, "tensor cores": 0.007, "FP64 pipe": 0.0},
    limits=("registers", "shared memory"),
)  # fmt: skip
FILL = KernelCounters(name="fill", launches=2, seconds=10e-6, share=1 / 9, figures={"dram": 0.4, "sm": 0.2})


def page(*, seconds: float, flops: int, bytes_moved: int = 32_000_000, **rest: Any) -> Profile:
    workload = Workload(inputs=(), outputs=(), parameters=(), flops=flops, bytes_moved=bytes_moved)
    peaks = PEAKS.model_copy(update={name: rest.pop(name) for name in ("caches", "quiet") if name in rest})
    facts = {"hot_spots": (), **rest}
    return digest(
        tool="torch.profiler", seconds=seconds, roofline=roofline(workload, peaks), workload=workload, **facts
    )


def test_a_matmul_with_hot_spots_and_notes() -> None:
    profile = page(seconds=10e-3, flops=10**9, hot_spots=SPOTS, notes=["threads: 2"])
    assert profile.digest_text == MATMUL
    assert profile.hot_spots == SPOTS
    assert profile.roofline_share == 0.5


def test_arithmetic_nobody_counted_is_left_out() -> None:
    assert page(seconds=2e-3, flops=0).digest_text == ELEMENTWISE


CACHES = (
    CacheLevel(level=1, bytes=64 << 10, threads=1, count=2, bytes_per_second=120e9),
    CacheLevel(level=2, bytes=1 << 20, threads=1, count=2, bytes_per_second=80e9),
    CacheLevel(level=3, bytes=32 << 20, threads=2),
)


@pytest.mark.parametrize(
    ("seconds", "bytes_moved", "data", "achieved"),
    [
        (1e-3, 2_000_000, "2 MB, all of it once: has room in L2 (2 MiB)", "2 GB/s (10% of memory's, 2.5% of L2's)"),
        (1e-3, 3_000_000, "3 MB, all of it once: has room in L3 (32 MiB)", "3 GB/s (15% of memory's)"),
        (4e-3, 40_000_000, "40 MB, all of it once: more than L3 holds (32 MiB)", "10 GB/s (50% of memory's)"),
    ],
)
def test_the_data_of_a_call_is_set_against_the_cache_levels(
    seconds: float, bytes_moved: int, data: str, achieved: str
) -> None:
    text = page(seconds=seconds, flops=0, bytes_moved=bytes_moved, caches=CACHES).digest_text
    assert f"Data of a call        {data}\n" in text
    assert f"Achieved              {achieved}\n" in text
    assert (
        "Caches                L1 2 x 64 KiB at 120 GB/s, L2 2 x 1 MiB at 80 GB/s, L3 32 MiB (reading, all threads)"
        in text
    )


def test_rates_of_a_busy_machine_say_so() -> None:
    assert "other processes" not in page(seconds=1e-3, flops=0).digest_text
    assert "Caution               measured while other processes" in page(seconds=1, flops=0, quiet=False).digest_text


def test_a_program_above_the_roof_is_told_what_it_can_mean() -> None:
    """Cause: a fast program was told that it did fewer operations, and it did all of them."""
    text = page(seconds=1e-3, flops=0).digest_text
    assert (
        "above it: some of the data stays in a cache, is not read at all, or the bandwidth was measured too low" in text
    )
    cached = page(seconds=50e-6, flops=0, bytes_moved=2_000_000, caches=CACHES).digest_text
    assert "above it: the data of a call has room in L2, so memory does not bind" in cached
    algebra = page(seconds=4e-3, flops=10**9).digest_text
    assert "above it: less arithmetic than the reference's operators count, or the peak was measured too low" in algebra


def test_a_device_with_counters() -> None:
    rows = [("softmax", 1, 80e-6), ("fill", 2, 10e-6), (IDLE, 1, 410e-6)]
    spots = [HotSpot(name=name, calls=calls, seconds=s, share=s / 500e-6) for name, calls, s in rows]
    workload = Workload(inputs=(), outputs=(), parameters=(), flops=0, bytes_moved=1_600_000)
    profile = digest(
        tool="torch.profiler and Nsight Compute", seconds=100e-6, hot_spots=spots, workload=workload,
        roofline=roofline(workload, PEAKS), kernels=[SOFTMAX, FILL], notes=["a word"],
    )  # fmt: skip
    assert profile.digest_text == DEVICE, "the profiled run idled 82 % of its time, a call as it is timed does not"
    assert Profile.from_json(profile.to_json()) == profile


FULL = SOFTMAX.model_copy(
    update={
        "stalls": {"long_scoreboard": 0.3, "barrier": 0.2, "wait": 0.1, "drain": 0.1},
        "figures": {
            **SOFTMAX.figures, "store_sectors": 4, "waves": 2, "blocks": 4, "block_threads": 4, "registers": 4,
            "shared_bytes": 4,
        },
    }
)  # fmt: skip


@given(
    names=st.lists(st.text(min_size=1, max_size=500), max_size=60),
    notes=st.lists(st.text(max_size=500), max_size=60),
    seconds=st.floats(1e-9, 1e4),
    flops=st.integers(0, 10**18),
    bytes_moved=st.integers(0, 10**15),
    kernels=st.integers(0, 5),
)
def test_it_is_always_one_page(
    names: list[str], notes: list[str], seconds: float, flops: int, bytes_moved: int, kernels: int
) -> None:
    counted = [FULL.model_copy(update={"name": "k" * 90 * i, "share": 0.2}) for i in range(kernels)]
    spots = [HotSpot(name=name, calls=1, seconds=seconds, share=0.5) for name in (*names, IDLE)]
    profile = page(seconds=seconds, flops=flops, bytes_moved=bytes_moved, hot_spots=spots, notes=notes, kernels=counted)
    lines = profile.digest_text.split("\n")
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 150
