"""A person's judgement, written down: what limits a program whose figures look like this, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.profiling import exports
from kforge.profiling.bottleneck import name_bottleneck, of_kernel
from kforge.profiling.rows import IDLE
from kforge.records import HotSpot, KernelCounters, Peaks, Roofline

DATA = Path(__file__).parent / "data"


def kernel(*, stalls=None, pipes=None, limits=(), name="k", launches=1, share=1.0, **figures) -> KernelCounters:
    return KernelCounters(
        name=name, launches=launches, seconds=1e-3, share=share, figures=figures, stalls=stalls or {},
        pipes=pipes or {}, limits=limits,
    )  # fmt: skip


QUIET = {"dram": 0.2, "l2": 0.2, "l1": 0.3, "sm": 0.35}
MEMORY_WAIT = {"long_scoreboard": 0.7}

JUDGEMENTS = [
    pytest.param(kernel(dram=0.91, l2=0.5, l1=0.3, sm=0.2), "memory bound: DRAM at 91% of peak", id="copy"),
    pytest.param(
        kernel(dram=0.2, l2=0.83, l1=0.5, sm=0.4), "memory bound: L2 cache at 83% of peak", id="data stays in L2"
    ),
    # 16 sectors with full use are float4 loads: nothing is wrong with them
    pytest.param(
        kernel(dram=0.9, l2=0.5, l1=0.3, sm=0.2, load_sectors=16, load_use=1.0),
        "memory bound: DRAM at 90% of peak",
        id="vector loads",
    ),
    # DRAM is busy, but seven eighths of what it brings are thrown away
    pytest.param(
        kernel(dram=0.9, l2=0.95, l1=0.6, sm=0.1, load_sectors=32, load_use=0.125, store_sectors=4, store_use=1.0),
        "uncoalesced access: loads touch 32 sectors a request and use 12% of them",
        id="strided loads",
    ),
    # a column-wise kernel whose units all idle: warps wait for their scattered loads
    pytest.param(
        kernel(dram=0.2, l2=0.3, l1=0.2, sm=0.5, stalls=MEMORY_WAIT, load_sectors=24),
        "uncoalesced access: loads touch 24 sectors a request",
        id="scattered loads without their use",
    ),
    # one sector for a whole warp is a broadcast: it uses an eighth of the sector, and costs next to nothing
    pytest.param(
        kernel(dram=0.1, l2=0.1, l1=0.3, sm=0.8, pipes={"FP32 pipe": 0.75}, load_sectors=1, load_use=0.125),
        "compute bound: FP32 pipe at 75% of peak",
        id="broadcast loads",
    ),
    pytest.param(
        kernel(dram=0.1, l2=0.1, l1=0.3, sm=0.7, pipes={"tensor cores": 0.65, "FP32 pipe": 0.1}),
        "compute bound: tensor cores at 65% of peak",
        id="matrix products",
    ),
    pytest.param(
        kernel(dram=0.1, l2=0.1, l1=0.3, sm=0.85, issue=0.85, pipes={"FP32 pipe": 0.4}),
        "instruction bound: 85% of the issue slots are used, by no single pipe",
        id="index arithmetic everywhere",
    ),
    pytest.param(
        kernel(dram=0.1, l2=0.1, l1=0.9, sm=0.4, conflicts=0.75, stalls={"mio_throttle": 0.5}),
        "shared memory bank conflicts: 75% of the passes over it",
        id="transposed tile without padding",
    ),
    # conflicts there are, but DRAM is what limits: removing them would change nothing
    pytest.param(
        kernel(dram=0.88, l2=0.5, l1=0.4, sm=0.2, conflicts=0.5, stalls=MEMORY_WAIT),
        "memory bound: DRAM at 88% of peak",
        id="conflicts that do not matter",
    ),
    pytest.param(
        kernel(dram=0.5, l2=0.6, l1=0.7, sm=0.3, local=0.2),
        "local memory: spilled registers or late-indexed arrays, 20% of all instructions",
        id="spills",
    ),
    pytest.param(
        kernel(**QUIET, waves=8, occupancy=0.22, possible_occupancy=0.25, limits=("registers",), stalls=MEMORY_WAIT),
        "latency bound: low occupancy, 25% at most, limited by registers",
        id="255 registers",
    ),
    pytest.param(
        kernel(**QUIET, waves=0.1, blocks=16, occupancy=0.1, possible_occupancy=1.0),
        "latency bound: too little parallelism, 16 blocks fill 10% of the device",
        id="few long rows",
    ),
    pytest.param(
        kernel(**QUIET, waves=9, occupancy=0.9, possible_occupancy=1.0, stalls={"barrier": 0.4, "wait": 0.1}),
        "latency bound: warps wait for __syncthreads 40% of their time",
        id="barriers",
    ),
    pytest.param(kernel(registers=32), "", id="nothing to go by"),
]


@pytest.mark.parametrize(("figures", "judgement"), JUDGEMENTS)
def test_what_limits_a_kernel(figures: KernelCounters, judgement: str) -> None:
    assert of_kernel(figures) == judgement


@pytest.mark.parametrize(
    ("file", "judgement"),
    [
        # 34 MB in and 34 MB out of a cache of 60 MB: most of the output never reaches DRAM
        ("ncu_raw_softmax.csv", "memory bound: L2 cache at 76% of peak"),
        # 320 tiles of 64 by 64 for 132 multiprocessors with room for six each: nothing is busy
        ("ncu_raw_matmul.csv", "latency bound: too little parallelism, 320 blocks fill 40% of the device"),
    ],
)
def test_what_limited_two_real_kernels(file: str, judgement: str) -> None:
    (real,) = exports.read((DATA / file).read_text()).kernels
    assert of_kernel(real) == judgement


def spots(**seconds: float) -> list[HotSpot]:
    total = sum(seconds.values())
    return [HotSpot(name=name, calls=1, seconds=s, share=s / total) for name, s in seconds.items()]


def test_a_device_that_waits_for_its_host() -> None:
    rows = spots(softmax=3e-6, **{IDLE: 60e-6})
    named = name_bottleneck(hot_spots=rows, kernels=[kernel(dram=0.9)], seconds=10e-6, roofline=None)
    assert named == "launch bound: the device is idle 70% of a call"
    # in the profiled run it idled as much, but undisturbed the next launch is there in time
    busy = name_bottleneck(hot_spots=rows, kernels=[kernel(dram=0.9)], seconds=3.1e-6, roofline=None)
    assert busy == "memory bound: DRAM at 90% of peak"


def test_copies_between_host_and_device() -> None:
    rows = spots(softmax=10e-6, **{"Memcpy DtoH (Device -> Pageable)": 20e-6, "Memcpy DtoD (Device -> Device)": 1e-6})
    named = name_bottleneck(hot_spots=rows, kernels=(), seconds=31e-6, roofline=None)
    assert named == "host transfers: copies between host and device take 65% of the device's time"


def test_of_several_kernels_the_first_is_meant_and_named() -> None:
    kernels = [kernel(name="gemm", sm=0.8, share=0.7), kernel(name="copy", dram=0.9, share=0.3)]
    named = name_bottleneck(hot_spots=(), kernels=kernels, seconds=None, roofline=None)
    assert named == "compute bound: multiprocessors at 80% of peak (gemm)"


def test_without_counters_only_a_near_roof_is_a_reason() -> None:
    roof = Roofline(
        peaks=Peaks(device="d", bytes_per_second=1.0, flops_per_second=1.0), memory_seconds=1.0, compute_seconds=0.5
    )
    name = lambda seconds: name_bottleneck(hot_spots=(), kernels=(), seconds=seconds, roofline=roof)  # noqa: E731
    assert name(1.25) == "memory bound: 80% of the roofline is reached"
    assert name(2.0) == name(0.9) == ""
