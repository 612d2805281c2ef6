"""What the kernel tells about the processor, in words; and how much data is read from which cache."""

import re
import subprocess
from typing import Any

import pytest
import torch

from kforge.platforms import host, host_facts
from kforge.platforms.cpu import calibration
from kforge.records import CacheLevel


def test_cores_and_registers_are_those_of_this_machine() -> None:
    facts = dict(host_facts.facts())
    assert facts["Processor"] == host.describe()
    if (count := host.cores()) is not None:
        assert 1 <= count <= host.threads()
        assert facts["Cores"].startswith(str(count))
    if (registers := host.vector_registers()) is not None:
        size, name = registers
        assert name in host.features()
        assert facts["Vector registers"] == f"{size} bytes ({name}): {size // 4} float32 numbers"


def test_caches_are_those_that_the_system_reports() -> None:
    """Cause: the first level's cache for instructions was counted as one more level for data."""
    levels = host.cache_levels()
    assert [cache.level for cache in levels] == sorted({cache.level for cache in levels})
    asked = subprocess.run(["getconf", "-a"], capture_output=True, text=True, check=False).stdout
    sizes = dict(re.findall(r"^LEVEL(\d)_(?:D)?CACHE_SIZE\s+(\d+)$", asked, re.MULTILINE))
    for cache in levels:
        told = int(sizes.get(str(cache.level), 0))
        assert told in (0, cache.bytes)  # 0: the C library does not know it


def level(number: int, kib: int, threads: int) -> CacheLevel:
    return CacheLevel(level=number, bytes=kib << 10, threads=threads)


@pytest.mark.parametrize(
    ("caches", "threads", "kib"),
    [
        ([level(1, 64, 1), level(2, 1024, 1), level(3, 32768, 2)], 2, [32, 256, 4096]),
        ([level(1, 32, 2), level(2, 2048, 2), level(3, 262144, 16)], 16, [8, 64, 4096]),  # two threads a core
        ([level(1, 32, 1), level(2, 1024, 1), level(3, 32768, 32)], 32, [16, 128, None]),  # a small last level
        ([], 2, []),
    ],
)  # fmt: skip
def test_the_data_of_a_level_is_far_larger_than_the_level_before(
    caches: list[CacheLevel], threads: int, kib: list[int | None]
) -> None:
    found = [size and size >> 10 for _, size in calibration.data_by_level(caches, threads)]
    assert found == kib


def test_no_level_is_slower_than_the_one_behind_it() -> None:
    """Cause: on a busy machine the last level was told as 8.9 GB/s, and memory as 12 GB/s."""
    assert calibration.consistent([120.0, 30.0, 9.0], 12.0) == [120.0, 30.0, 12.0]
    assert calibration.consistent([20.0, None, 50.0], 12.0) == [50.0, None, 50.0]
    assert calibration.consistent([], 12.0) == []


class _CountingLoops:
    """Counts the bytes that each thread reads in a call, instead of reading them."""

    def __init__(self) -> None:
        self.read = 0

    def reading(self, data: torch.Tensor, vectors: int, rounds: int, threads: int) -> None:
        assert data.numel() * data.element_size() == threads * vectors * 64
        self.read = vectors * 64 * rounds


@pytest.mark.parametrize("mib", [1, 3, 12, 15, 40])
def test_each_thread_reads_enough_bytes_in_a_call(mib: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cause: the number of passes was rounded down, so with 9 to 15 MiB of data a call read only these."""
    monkeypatch.setattr(calibration, "SECONDS", 0.0)
    loops: Any = _CountingLoops()
    calibration._read_rate(loops, mib << 20, 64, 1)
    assert calibration.READ_BYTES <= loops.read < calibration.READ_BYTES + (mib << 20)
