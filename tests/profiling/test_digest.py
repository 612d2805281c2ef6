"""The page that the performance analysis agent reads, word for word."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kforge.profiling import digest, roofline
from kforge.records import HotSpot, Peaks, Profile, Workload

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
Time a call           2 ms
Device peaks          20 GB/s, 200 GFLOP/s (Some CPU, 2 threads)
Roofline floor        1.6 ms, memory bound
  memory              1.6 ms to move 32 MB, all data once
Share of the roof     80.0%
Achieved              16 GB/s
"""


def page(*, seconds: float, flops: int, bytes_moved: int = 32_000_000, **rest: Any) -> Profile:
    workload = Workload(inputs=(), outputs=(), parameters=(), flops=flops, bytes_moved=bytes_moved)
    facts = {"hot_spots": (), **rest}
    return digest(
        tool="torch.profiler", seconds=seconds, roofline=roofline(workload, PEAKS), workload=workload, **facts
    )


def test_a_matmul_with_hot_spots_and_notes() -> None:
    profile = page(seconds=10e-3, flops=10**9, hot_spots=SPOTS, notes=["threads: 2"])
    assert profile.digest_text == MATMUL
    assert profile.hot_spots == SPOTS
    assert profile.roofline_share == 0.5


def test_arithmetic_nobody_counted_is_left_out() -> None:
    assert page(seconds=2e-3, flops=0).digest_text == ELEMENTWISE


def test_a_program_above_the_roof_is_told_why() -> None:
    assert "above it: the data stays in a cache, memory does not bind" in page(seconds=1e-3, flops=0).digest_text
    algebra = page(seconds=4e-3, flops=10**9).digest_text
    assert "above it: fewer operations are done than the reference does" in algebra


@given(
    names=st.lists(st.text(min_size=1, max_size=500), max_size=60),
    notes=st.lists(st.text(max_size=500), max_size=60),
    seconds=st.floats(1e-9, 1e4),
    flops=st.integers(0, 10**18),
    bytes_moved=st.integers(0, 10**15),
)
def test_it_is_always_one_page(
    names: list[str], notes: list[str], seconds: float, flops: int, bytes_moved: int
) -> None:
    spots = [HotSpot(name=name, calls=1, seconds=seconds, share=0.5) for name in names]
    profile = page(seconds=seconds, flops=flops, bytes_moved=bytes_moved, hot_spots=spots, notes=notes)
    lines = profile.digest_text.split("\n")
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 150
