"""Number types with limits, for records that are read from other people's files, which may contain any number.

The limits are far beyond what can be measured. Within them, ratios, products and sums of a few numbers stay finite, and
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
    """Return the number, limited to the range of `Positive`."""
    return min(max(value, SMALLEST), LARGEST)


Positive = Annotated[float, AfterValidator(_positive)]
"""A positive number, such as the seconds of a call or a speedup."""
Amount = Annotated[float, AfterValidator(_amount)]
"""Zero or a positive number, such as seconds of waiting or a price."""
Finite = Annotated[float, AfterValidator(_finite)]
"""A number that is neither infinite nor NaN."""
Count = Annotated[int, AfterValidator(_count)]
"""An integer from 0 to LARGEST_COUNT."""
