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
"""Speedup below which a forged module is called slower, if its whole interval is below 1."""


def speedup_as_called(
    forged: Callable[..., Any], original: Callable[..., Any], inputs: Sequence[Any], device: torch.device
) -> Interval | None:
    """Return the speedup of a call of the forged module over a call of the original. None if calls are longer than
    SHORT_CALL.

    Blocks of both run alternately in this process. The bounds are the second smallest and the second largest of PAIRS
    ratios of neighbouring blocks: a 95 % interval of their median, whatever disturbs them.
    """
    with torch.no_grad():
        for side in (forged, original, forged):  # the first calls build and allocate, so they are not timed
            _block(side, inputs, 1, device)
        once = _block(original, inputs, 1, device)
        if once > SHORT_CALL:
            return None
        calls = max(1, round(BLOCK / max(once, 1e-6)))
        pairs = [(_block(original, inputs, calls, device), _block(forged, inputs, calls, device)) for _ in range(PAIRS)]
    ratios = sorted(first / second for first, second in pairs)
    return Interval(median=ratios[PAIRS // 2], low=ratios[1], high=ratios[-2])


def _block(side: Callable[..., Any], inputs: Sequence[Any], calls: int, device: torch.device) -> float:
    """Return the seconds that this number of calls takes."""
    start = time.perf_counter()
    for _ in range(calls):
        side(*inputs)
    if device.type != HOST.type:
        torch.accelerator.synchronize(device)
    return time.perf_counter() - start
