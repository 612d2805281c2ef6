"""Measures the rates of the host's processor with small C++ loops: reading from each cache level, STREAM's triad,
multiply-adds, and the clock. (torch)"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import torch

from kforge import inline
from kforge.platforms import host, peaks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.records import CacheLevel, Peaks

_LOOPS = r"""
#include <cstdint>

typedef int32_t integers __attribute__((vector_size(VECTOR_BYTES)));
typedef float floats __attribute__((vector_size(VECTOR_BYTES)));

extern "C" void triad(const float* __restrict__ b, const float* __restrict__ c, float* __restrict__ a, int64_t n) {
    #pragma omp parallel for simd
    for (int64_t i = 0; i < n; ++i) a[i] = b[i] + 3.0f * c[i];
}

// Each thread reads data of its own, again and again. Eight results, since each must wait for the one before.
extern "C" int64_t reading(const int32_t* data, int64_t vectors, int64_t rounds, int64_t threads) {
    int64_t found = 0;
    #pragma omp parallel for reduction(+ : found) schedule(static, 1)
    for (int64_t thread = 0; thread < threads; ++thread) {
        const integers* own = reinterpret_cast<const integers*>(data) + thread * vectors;
        integers any[8] = {};
        for (int64_t round = 0; round < rounds; ++round) {
            for (int64_t i = 0; i + 8 <= vectors; i += 8) {
                #pragma GCC unroll 8
                for (int lane = 0; lane < 8; ++lane) any[lane] |= own[i + lane];
            }
            asm volatile("" ::: "memory");  // the next round reads anew
        }
        for (int lane = 0; lane < 8; ++lane) found += any[lane][0];
    }
    return found;
}

// Multiply-adds in registers: as many independent ones as two units with a latency of five cycles can have under way.
extern "C" float multiplying(const float* factors, int64_t rounds, int64_t threads) {
    float found = 0;
    #pragma omp parallel for reduction(+ : found) schedule(static, 1)
    for (int64_t thread = 0; thread < threads; ++thread) {
        const floats* by = reinterpret_cast<const floats*>(factors);
        floats sums[CHAINS];  // of different values: equal ones would be computed once
        #pragma GCC unroll 16
        for (int chain = 0; chain < CHAINS; ++chain) sums[chain] = by[0] * static_cast<float>(chain);
        for (int64_t round = 0; round < rounds; ++round) {
            const floats left = by[0], right = by[1];
            #pragma GCC unroll 16
            for (int chain = 0; chain < CHAINS; ++chain) sums[chain] += left * right;
            asm volatile("" ::: "memory");  // the factors are read anew, so that no product is computed in advance
        }
        for (int chain = 0; chain < CHAINS; ++chain) found += sums[chain][0];
    }
    return found;
}

// Additions that wait for each other: one takes one cycle.
extern "C" int64_t ticking(int64_t rounds, int64_t step) {
    int64_t sum = 0;
    for (int64_t round = 0; round < rounds; ++round) {
        #pragma GCC unroll 16
        for (int one = 0; one < 16; ++one) {
            sum += step;
            asm volatile("" : "+r"(sum));
        }
    }
    return sum;
}
"""

CHAINS, MANY_CHAINS = 12, 16
"""Number of independent multiply-adds per thread, each of which needs a register: with 16 vector registers, and with
32."""
WIDE = 64
"""Width in bytes of vector registers from which x86-64 has 32 of them. Arm always has 32."""
ARM_BYTES = 16
"""Width in bytes of the loops' vectors on Arm, whatever the width of its scalable registers."""
ROUNDS = 40_000
"""Rounds of arithmetic in one call, which take some hundred microseconds. That is long enough for starting the threads
to cost little, and short enough for some calls not to be interrupted by the scheduler."""
READ_BYTES = 16 << 20
"""Least number of bytes that each thread reads in one call, always in whole passes over its data. Starting the threads
costs little beside reading this many."""
SECONDS, LEAST_CALLS = 0.3, 20
"""Seconds for which the calls of one loop are timed, and the least number of calls. The fastest call counts."""
BEYOND = 4
"""Most bytes of a thread's data for a cache level, as a multiple of the thread's share of the previous level. With so
much data, little of it stays in the previous level."""
DISTINCT = 1.5
"""A cache level is measured only if half of a thread's share of it is at least this many times its share of the
previous level. Otherwise the two levels cannot be told apart."""


def measured(general: Peaks) -> Peaks:
    """Return the peaks of torch's operators, raised to what C++ loops reach, with the rates of the caches and the
    clock. Raises CompileError or ToolchainError if the loops cannot be built."""
    threads = torch.get_num_threads()
    width, chains = _vectors()
    loops = inline.compile(_LOOPS, flags=[f"-DVECTOR_BYTES={width}", f"-DCHAINS={chains}"])
    count = peaks.BUFFER_BYTES // 4
    b, c, a = torch.ones(count), torch.ones(count), torch.empty(count)
    triad = _best_rate(lambda: loops.triad(b, c, a, count), 3.0 * peaks.BUFFER_BYTES)
    reading = _read_rate(loops, peaks.BUFFER_BYTES // threads, width, threads)
    factors = torch.full((width // 2,), 0.5)
    work = 2.0 * ROUNDS * chains * (width // 4) * threads
    multiplying = _best_rate(lambda: loops.multiplying(factors, ROUNDS, threads), work)
    memory = max(general.bytes_per_second, triad, reading)
    sizes = data_by_level(general.caches, threads)
    rates = [None if own is None else _read_rate(loops, own, width, threads) for _, own in sizes]
    return general.model_copy(
        update={
            "bytes_per_second": memory,
            "flops_per_second": max(general.flops_per_second, multiplying),
            "caches": tuple(
                cache.model_copy(update={"bytes_per_second": rate})
                for (cache, _), rate in zip(sizes, consistent(rates, memory), strict=True)
            ),
            "hertz": _best_rate(lambda: loops.ticking(ROUNDS, 1), 16.0 * ROUNDS),
        }
    )


def consistent(rates: Sequence[float | None], memory: float) -> list[float | None]:
    """Return the rates of cache levels, each raised to at least the rate of the next level and of memory. A level that
    seems slower than the next one was disturbed while it was measured."""
    found: list[float | None] = []
    least = memory
    for rate in reversed(rates):
        least = max(least, rate or 0.0)
        found.append(None if rate is None else least)
    return found[::-1]


def data_by_level(levels: Sequence[CacheLevel], threads: int) -> list[tuple[CacheLevel, int | None]]:
    """Return for each cache the bytes that a thread must read so that its data comes from there. None if half of the
    thread's share of the cache is hardly larger than its share of the previous level (`DISTINCT`)."""
    found: list[tuple[CacheLevel, int | None]] = []
    before = 0
    for cache in levels:
        share = cache.bytes // min(cache.threads, threads)
        half = share // 2
        apart = not before or half >= DISTINCT * before
        found.append((cache, (min(half, BEYOND * before) if before else half) if apart else None))
        before = max(before, share)
    return found


def _vectors() -> tuple[int, int]:
    """Return the bytes of the vectors that the loops use, and the number of independent multiply-adds."""
    size, name = host.vector_registers() or (ARM_BYTES, "")
    if name in ("asimd", "neon", "sve"):
        return ARM_BYTES, MANY_CHAINS
    return size, MANY_CHAINS if size >= WIDE else CHAINS


def _read_rate(loops: inline.Library, own: int, width: int, threads: int) -> float:
    """Return the bytes per second that all threads together read. Each one repeatedly reads `own` bytes of its own."""
    vectors = own // width // 8 * 8
    data = torch.ones(threads * vectors * width // 4, dtype=torch.int32)
    rounds = -(-READ_BYTES // (vectors * width))  # rounded up
    work = float(rounds * threads * vectors * width)
    return _best_rate(lambda: loops.reading(data, vectors, rounds, threads), work)


def _best_rate(call: Callable[[], object], work: float) -> float:
    """Return the work per second of the fastest of many short calls. On a busy machine few of them are undisturbed."""
    best, calls, end = math.inf, 0, time.perf_counter() + SECONDS
    while calls < LEAST_CALLS or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best, calls = min(best, time.perf_counter() - start), calls + 1
    return work / best
