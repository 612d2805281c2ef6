"""Whether a kernel pays as a user calls it: it is timed by itself, and a call of a forged module costs more. (torch)

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
"""Seconds: a call that takes longer hides what deciding on it costs, and is not looked at."""
BLOCK, PAIRS = 2e-3, 9
"""Seconds of calls that are timed together, and how many such blocks of each side."""
SLOWER = 0.97
"""Below this ratio a forged module is called slower; what is nearer to 1 may be noise."""


def speedup_as_called(
    forged: Callable[..., Any], original: Callable[..., Any], inputs: Sequence[Any], device: torch.device
) -> Interval | None:
    """How much faster calls of the forged module are than of the original; None where calls are long.

    Both run in this process, in turn. Other processes only slow blocks down, so the quickest block of each side counts;
    the bounds are the ratios of the pairs of blocks.
    """
    with torch.no_grad():
        for side in (forged, original, forged):  # what is built or allocated at the first call is no part of it
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
