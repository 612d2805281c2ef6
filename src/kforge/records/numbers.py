"""Number types with bounds, because a file made by others may hold any number that JSON can write.

The bounds are far beyond what can be measured. Within them ratios, products and sums of a few numbers stay finite, and
a count fits into a database's integer.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

SMALLEST, LARGEST = 1e-100, 1e100
LARGEST_COUNT = 2**63 - 1


def _positive(value: float) -> float:
    if not SMALLEST <= value <= LARGEST:
        raise ValueError("it must be a positive, finite number")
    return value


def _amount(value: float) -> float:
    if not 0.0 <= value <= LARGEST:
        raise ValueError("it must be zero or a positive, finite number")
    return value


def _finite(value: float) -> float:
    if not abs(value) <= LARGEST:
        raise ValueError("it must be a finite number")
    return value


def _count(value: int) -> int:
    if not 0 <= value <= LARGEST_COUNT:
        raise ValueError(f"it must be a count from 0 to {LARGEST_COUNT}")
    return value


def within(value: float) -> float:
    """Return the number, clamped to the range of `Positive`."""
    return min(max(value, SMALLEST), LARGEST)


Positive = Annotated[float, AfterValidator(_positive)]
"""Seconds of a call, or a speedup."""
Amount = Annotated[float, AfterValidator(_amount)]
"""Seconds of waiting, or a price."""
Finite = Annotated[float, AfterValidator(_finite)]
Count = Annotated[int, AfterValidator(_count)]
