"""Reads CSV tables inside other output, and numbers as profilers write them. Raises ProfileError for unclear values."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING

from kforge.errors import ProfileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?")
"""Matches a number in the C locale, also with commas between groups of digits."""
_NOTHING = re.compile(r"|n/?a|-?nan|-?inf|\(!\).*|-", re.IGNORECASE)
"""Matches what tools write for a missing value."""
_TIME = {
    f"{prefix}{word}": size
    for prefix, size in (("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9))
    for word in ("s", "sec", "second")
}
_PREFIX = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
MAX_CELL = 1 << 20
"""Most characters of a cell."""
LARGEST = 1e18
"""Largest accepted number, about thirty years in nanoseconds. Sums stay finite, and counts fit into 64 bits."""


def rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the cells of each line, up to the first text that is not CSV."""
    csv.field_size_limit(MAX_CELL)
    try:
        yield from csv.reader(lines)
    except csv.Error:
        return


def number(text: str) -> float | None:
    """Return a number; None if the tool wrote that there is no value. Raises ProfileError for an impossible number."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        value = float(text.replace(",", ""))
        if not 0 <= value <= LARGEST:
            raise ProfileError(f"{text[:40]!r} is negative or too large for a time, a count or a share")
        return value
    if _NOTHING.fullmatch(text):
        return None
    raise ProfileError(f"{text[:40]!r} is not a number in the C locale's format; export again with LC_ALL=C")


def plain_number(text: str) -> float | None:
    """Return a number as `number` does, for tools that never group digits. There a comma is the decimal point of
    another locale, so it raises ProfileError. None if the tool wrote that there is no value."""
    if "," in text:
        raise ProfileError(f"{text[:40]!r} is not a number in the C locale's format; export again with LC_ALL=C")
    return number(text)


def scale(unit: str) -> float:
    """Return the factor from a unit (`us`, `usecond`, `Kbyte`, `Mbyte/block`, `%`) to the base unit."""
    unit = unit.strip().partition("/")[0]
    if unit == "%":
        return 0.01
    if unit in _TIME:
        return _TIME[unit]
    return _PREFIX[unit[0].upper()] if re.fullmatch(r"[KMGT][a-z]+|[kKMGT]B", unit) else 1.0
