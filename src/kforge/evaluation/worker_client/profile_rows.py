"""Reads rows of a profile that a worker sends: a name, a count, and seconds. Nothing in them is believed."""

from __future__ import annotations

from typing import Any

Row = tuple[str, int, float]
"""A name, a count (in a timeline: the nanoseconds after which it began), and seconds in all."""
PROFILE_ROWS, TIMELINE_ROWS, MAX_NAME, MAX_PROFILED_SECONDS = 64, 128, 200, 1e6
"""Most rows of a profile and of its timeline, characters of a name, and seconds that are accepted from a worker."""
KERNELS, MAX_KERNEL_NAME = 1024, 1000
"""Most rows and characters of a name that are accepted for the kernels that it ran."""


def rows_of(rows: Any, most: int, longest: int) -> list[Row]:
    """The first rows, with names cut to a length. Raises ValueError or TypeError for anything but a list of rows."""
    return [_row(longest, *row) for row in list(rows)[:most]]  # a worker may send anything for a list


def _row(longest: int, name: Any, calls: Any, seconds: Any) -> Row:
    if not (isinstance(name, str) and type(calls) is int and isinstance(seconds, float)):
        raise TypeError
    if calls < 0 or not 0.0 <= seconds < MAX_PROFILED_SECONDS:
        raise ValueError
    return name[:longest], calls, seconds
