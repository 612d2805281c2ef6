"""Measures whether a forged module is faster than the original as a user calls it. (torch)

Each call of a forged module costs some microseconds more, to decide whether the kernel may serve the call. If the
original takes hardly longer than that, a faster kernel makes a slower module.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from kforge.problems.tensors import HOST
from kforge.records import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SHORT_CALL = 5e-3
"""Seconds of a call above which nothing is measured. The microseconds that a forged module adds to each call do not
matter then."""
BLOCK, PAIRS = 2e-3, 9
"""Seconds of calls that are timed together (a block), and the number of blocks for each of the two modules."""
SLOWER = 0.97
"""Speedup below which a forged module is called slower. A ratio nearer to 1 may be noise."""


def speedup_as_called(
    forged: Callable[..., Any], original: Callable[..., Any], inputs: Sequence[Any], device: torch.device
) -> Interval | None:
    """Return the speedup of a call of the forged module over a call of the original. None if calls are longer than
    SHORT_CALL.

    Blocks of both run alternately in this process. Other processes can only slow a block down, so the median is the
    ratio of the fastest blocks; the bounds are the smallest and the largest ratio of a pair of blocks.
    """
    with torch.no_grad():
        for side in (forged, original, forged):  # the first calls build and allocate, so they are not timed
            _block(side, inputs, 1, device)
        once = _block(original, inputs, 1, device)
        if once > SHORT_CALL:
            return None
        calls = max(1, round(BLOCK / max(once, 1e-6)))
        pairs = [(_block(original, inputs, calls, device), _block(forged, inputs, calls, device)) for _ in range(PAIRS)]
    ratio = min(first for first, _ in pairs) / min(second for _, second in pairs)
    ratios = sorted(first / second for first, second in pairs)
    return Interval(median=ratio, low=min(ratio, ratios[0]), high=max(ratio, ratios[-1]))


def _block(side: Callable[..., Any], inputs: Sequence[Any], calls: int, device: torch.device) -> float:
    """Return the seconds that this number of calls takes."""
    start = time.perf_counter()
    for _ in range(calls):
        side(*inputs)
    if device.type != HOST.type:
        torch.accelerator.synchronize(device)
    return time.perf_counter() - start
