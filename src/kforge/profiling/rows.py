"""Names of rows in a profile that are neither an operator nor a kernel, and tests for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.records import HotSpot

OUTSIDE = "outside torch operators (authored kernels, Python)"
LAUNCHING = "outside torch operators (launches and copies, Python)"
IDLE = "device idle (launches, Python)"
OTHER = "other"

_TRANSFER = re.compile(r"\bmemcpy (?:HtoD|DtoH|Host-to-Device|Device-to-Host)\b", re.IGNORECASE)


def busy_seconds(spots: Sequence[HotSpot]) -> float | None:
    """Return the seconds per call in which the device is busy; None for a profile of the host."""
    if not any(spot.name == IDLE for spot in spots):
        return None
    return sum(spot.seconds for spot in spots if spot.name != IDLE)


def is_transfer(spot: HotSpot) -> bool:
    """Return whether the row is a copy between host and device."""
    return _TRANSFER.search(spot.name) is not None
