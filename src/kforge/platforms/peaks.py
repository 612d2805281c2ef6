"""Measures the rates that a device reaches in memory traffic and arithmetic. (torch)"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

BUFFER_BYTES = 128 << 20
"""Bytes of a buffer: much more than most caches hold, and little enough for a device with little memory."""
HALVES, BFLOATS = 3, 6
"""Number of half-precision products, and of bfloat16 products, that replace one float32 product with equal accuracy. If
matrix units multiply these much faster, they determine the peak rate for float32."""
_ROUNDS = 5
_BLOCK_SECONDS = 0.02
"""Least seconds of a timed block, so that the clock's resolution and the last synchronization do not matter."""


def rate(call: Callable[[], object], work: float, synchronize: Callable[[], None]) -> float:
    """Return the work per second of a call: the best of several blocks, because slower blocks were disturbed."""
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
    """Return the memory bandwidth in bytes per second: the better of a copy, and of a sum, which only reads."""
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    copying = rate(lambda: target.copy_(source), 2 * size, synchronize)
    reading = rate(source.sum, size, synchronize)
    return max(copying, reading)


def flops_per_second(device: str, synchronize: Callable[[], None], dtype: torch.dtype = torch.float32) -> float:
    """Return the arithmetic rate of matrix products in operations per second. The matrices are doubled in size until
    one product takes long enough."""
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
