"""Reads the rows of a profile that a worker sends: a name, a count and seconds. The worker may send anything."""

from __future__ import annotations

from typing import Any

Row = tuple[str, int, float]
"""A name, a count (in a timeline: the nanoseconds after which it began), and total seconds."""
PROFILE_ROWS, TIMELINE_ROWS, MAX_NAME, MAX_PROFILED_SECONDS = 64, 128, 200, 1e6
"""Limits on a worker's profile: most rows, most rows of its timeline, most characters of a name, and most seconds."""
KERNELS, MAX_KERNEL_NAME = 1024, 1000
"""Limits on a worker's list of kernels: most rows, and most characters of a name."""

MAX_EXPLANATION = 64_000
"""Most characters of a worker's explanation of samples."""


def rows_of(rows: Any, most: int, longest: int) -> list[Row]:
    """Return the first `most` rows, with names cut to `longest` characters. Raises ValueError or TypeError for invalid
    rows."""
    return [_row(longest, *row) for row in list(rows)[:most]]  # a worker may send anything for a list


def _row(longest: int, name: Any, calls: Any, seconds: Any) -> Row:
    if not (isinstance(name, str) and type(calls) is int and isinstance(seconds, float)):
        raise TypeError
    if calls < 0 or not 0.0 <= seconds < MAX_PROFILED_SECONDS:
        raise ValueError
    return name[:longest], calls, seconds
