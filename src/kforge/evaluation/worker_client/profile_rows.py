"""Rows of a profile that a worker sends: a name, how often, and how many seconds; nothing in them is believed."""

from __future__ import annotations

from typing import Any

Row = tuple[str, int, float]
"""A name, how often, and how many seconds in all."""
PROFILE_ROWS, MAX_NAME, MAX_PROFILED_SECONDS = 64, 200, 1e6
"""What of a worker's profile is looked at."""
KERNELS, MAX_KERNEL_NAME = 1024, 1000
"""And of the kernels that it ran."""


def rows_of(rows: Any, most: int, longest: int) -> list[Row]:
    """The first rows, with names cut to a length. Raises ValueError or TypeError for what is no list of rows."""
    return [_row(longest, *row) for row in list(rows)[:most]]  # a worker may send anything for a list


def _row(longest: int, name: Any, calls: Any, seconds: Any) -> Row:
    if not (isinstance(name, str) and type(calls) is int and isinstance(seconds, float)):
        raise TypeError
    if calls < 0 or not 0.0 <= seconds < MAX_PROFILED_SECONDS:
        raise ValueError
    return name[:longest], calls, seconds
