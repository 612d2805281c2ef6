"""Formats times, amounts and names for the page of a profile."""

from __future__ import annotations

MAX_WIDTH = 110


def time(seconds: float) -> str:
    """Return seconds as text in s, ms or µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-6:.4g} µs"


def amount(value: float, unit: str) -> str:
    """Return a value with its unit and a decimal prefix."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def binary(count: int) -> str:
    """Return the size of a cache or memory in KiB, MiB or GiB."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count / 1024:.4g} KiB"


def percent(share: float) -> str:
    """Return a share as a percentage, with one decimal below 10 %."""
    return f"{share:.1%}" if 0 < share < 0.0995 else f"{share:.0%}"


def cut(text: str, width: int = MAX_WIDTH) -> str:
    """Return the text as one line of at most this width. Names of template kernels can have thousands of characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
