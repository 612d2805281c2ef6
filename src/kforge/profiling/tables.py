"""CSV in the middle of other output, with the numbers of profilers. Raises ProfileError for what would be misread."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING

from kforge.errors import ProfileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_NOTHING = re.compile(r"|n/?a|-?nan|-?inf|\(!\).*|-", re.IGNORECASE)
_TIME = {
    f"{prefix}{word}": size
    for prefix, size in (("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9))
    for word in ("s", "sec", "second")
}
_PREFIX = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
MAX_CELL = 1 << 20
LARGEST = 1e18
"""Thirty years in nanoseconds: whatever is computed from such numbers is finite, and a count fits into 64 bits."""


def rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """The cells of each line; text that no CSV can hold ends it."""
    csv.field_size_limit(MAX_CELL)
    try:
        yield from csv.reader(lines)
    except csv.Error:
        return


def number(text: str) -> float | None:
    """None where a tool wrote that it has none. Raises ProfileError for a number that cannot be measured."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        value = float(text.replace(",", ""))
        if not 0 <= value <= LARGEST:
            raise ProfileError(f"{text[:40]!r} is negative or too large for a time, a count or a share")
        return value
    if _NOTHING.fullmatch(text):
        return None
    raise ProfileError(f"{text[:40]!r} is no number as the C locale writes it; export again with LC_ALL=C")


def plain_number(text: str) -> float | None:
    """As `number`, from a tool that never groups digits: there a comma can only be another locale's decimal point."""
    if "," in text:
        raise ProfileError(f"{text[:40]!r} is no number as the C locale writes it; export again with LC_ALL=C")
    return number(text)


def scale(unit: str) -> float:
    """What a unit is worth in base units: `us`, `usecond`, `Kbyte`, `Mbyte/block`, `%`."""
    unit = unit.strip().partition("/")[0]
    if unit == "%":
        return 0.01
    if unit in _TIME:
        return _TIME[unit]
    return _PREFIX[unit[0].upper()] if re.fullmatch(r"[KMGT][a-z]+|[kKMGT]B", unit) else 1.0
