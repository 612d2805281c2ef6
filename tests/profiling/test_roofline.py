"""The roofline is arithmetic on measured facts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.profiling import roofline
from kforge.records import Peaks, Workload

positive = st.floats(1.0, 1e15)


def workload(flops: int, bytes_moved: int) -> Workload:
    return Workload(inputs=(), outputs=(), parameters=(), flops=flops, bytes_moved=bytes_moved)


@given(st.integers(0, 10**15), st.integers(0, 10**12), positive, positive)
def test_the_floor_is_the_larger_bound(flops: int, traffic: int, bandwidth: float, throughput: float) -> None:
    peaks = Peaks(device="d", bytes_per_second=bandwidth, flops_per_second=throughput)
    result = roofline(workload(flops, traffic), peaks)
    assert result.memory_seconds * bandwidth == pytest.approx(traffic)
    assert result.compute_seconds * throughput == pytest.approx(flops)
    assert result.floor_seconds == max(result.memory_seconds, result.compute_seconds)
    assert result.peaks == peaks


def test_the_bound_is_named() -> None:
    peaks = Peaks(device="d", bytes_per_second=10.0, flops_per_second=100.0)
    assert roofline(workload(99, 10), peaks).bound == "memory"
    assert roofline(workload(101, 10), peaks).bound == "compute"


def test_arithmetic_counts_in_the_declared_precision() -> None:
    peaks = Peaks(device="d", bytes_per_second=1.0, flops_per_second=10.0, lowered={"tf32": 100.0, "half": 1000.0})
    work = workload(1000, 1)
    assert [roofline(work, peaks, p).compute_seconds for p in ("strict", "tf32", "half")] == [100.0, 10.0, 1.0]
    host = Peaks(device="d", bytes_per_second=1.0, flops_per_second=10.0)
    assert roofline(work, host, "tf32").compute_seconds == 100.0
