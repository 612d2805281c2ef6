"""Measures the rates that a device really reaches (torch)."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

BUFFER_BYTES = 128 << 20
"""Bytes of a buffer: well beyond the caches, and small enough for a modest device."""
HALVES, BFLOATS = 3, 6
"""Number of half-precision or bfloat16 products that make up one product of single precision, equally exact. Where
matrix units multiply these much faster, this sets the peak for single precision."""
_ROUNDS = 5
_BLOCK_SECONDS = 0.02
"""Least seconds of a timed block, so that the clock and the last synchronization do not matter."""


def rate(call: Callable[[], object], work: float, synchronize: Callable[[], None]) -> float:
    """Return work per second, the best of several blocks: slower ones were disturbed."""
    call()
    synchronize()
    calls = 1
    while (elapsed := _seconds(call, calls, synchronize)) < _BLOCK_SECONDS:
        calls *= 2
    best = min(elapsed, *(_seconds(call, calls, synchronize) for _ in range(_ROUNDS)))
    return calls * work / best


def _seconds(call: Callable[[], object], calls: int, synchronize: Callable[[], None]) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    synchronize()
    return time.perf_counter() - start


def bytes_per_second(device: str, synchronize: Callable[[], None], size: int = BUFFER_BYTES) -> float:
    """The memory bandwidth: the better of copying and of only reading, since a reduction writes next to nothing."""
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    copying = rate(lambda: target.copy_(source), 2 * size, synchronize)
    reading = rate(source.sum, size, synchronize)
    return max(copying, reading)


def flops_per_second(device: str, synchronize: Callable[[], None], dtype: torch.dtype = torch.float32) -> float:
    """Return the arithmetic rate of matrix products, each twice as wide as the last, until one fills a block."""
    size, best = 512, 0.0
    while True:
        # Random numbers: on ones, matrix units draw less power, and run faster than on any real data.
        left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        product = torch.empty_like(left)
        call = partial(torch.mm, left, right, out=product)
        call()
        synchronize()
        seconds = _seconds(call, 1, synchronize)
        best = max(best, 2 * size**3 / seconds)
        if seconds > _BLOCK_SECONDS:
            return max(best, *(2 * size**3 / _seconds(call, 1, synchronize) for _ in range(_ROUNDS)))
        size *= 2
