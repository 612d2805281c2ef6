"""Measures whether a kernel is faster as a user calls it: a call of a forged module has extra cost. (torch)

Deciding whether the kernel may serve a call takes some microseconds. Where the module itself takes hardly longer, a
faster kernel makes a slower module.
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
"""Seconds. Longer calls are not measured: for them the cost of the decision does not matter."""
BLOCK, PAIRS = 2e-3, 9
"""Seconds of calls that are timed together, and the number of these blocks for each side."""
SLOWER = 0.97
"""Below this speedup a forged module is called slower; a ratio nearer to 1 may be noise."""


def speedup_as_called(
    forged: Callable[..., Any], original: Callable[..., Any], inputs: Sequence[Any], device: torch.device
) -> Interval | None:
    """Return the speedup of calls of the forged module over the original; None where calls are long.

    Both run in this process, in turn. Other processes only slow blocks down, so the quickest block of each side counts;
    the bounds are the ratios of the pairs of blocks.
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
    """Seconds that this number of calls takes."""
    start = time.perf_counter()
    for _ in range(calls):
        side(*inputs)
    if device.type != HOST.type:
        torch.accelerator.synchronize(device)
    return time.perf_counter() - start
