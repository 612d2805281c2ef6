"""Finds quantities in a recommendation's evidence that the performance analysis agent was never shown.

Only quantities with a unit of measurement are looked at: times, shares, rates and amounts of data. Plain numbers may be
counted in the program or derived from its shapes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_UNITS = {
    "time": {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0},
    "share": {"%": 0.01, "percent": 0.01},
    "rate": {
        **{f"{prefix}b/s": 10.0**power for prefix, power in {"k": 3, "m": 6, "g": 9, "t": 12}.items()},
        **{f"{prefix}flop/s": 10.0**power for prefix, power in {"m": 6, "g": 9, "t": 12}.items()},
        **{f"{prefix}flops": 10.0**power for prefix, power in {"m": 6, "g": 9, "t": 12}.items()},
    },
    "data": {
        **{f"{prefix}b": 10.0**power for prefix, power in {"k": 3, "m": 6, "g": 9}.items()},
        **{f"{prefix}ib": 2.0**power for prefix, power in {"k": 10, "m": 20, "g": 30}.items()},
        "bytes": 1.0,
    },
}
"""For each kind of quantity its units, in lower case, with their sizes in the kind's own unit."""
_NAMES = sorted((name for units in _UNITS.values() for name in units), key=len, reverse=True)
_QUANTITY = re.compile(
    rf"(?<![\w.])(?P<number>\d+(?:,\d{{3}})*(?:\.\d+)?) ?(?P<unit>{'|'.join(map(re.escape, _NAMES))})(?![\w/])",
    re.IGNORECASE,
)
LOOSE = 0.02
"""Relative difference that passes for rounding, besides half a unit of the last digit that is written."""


class Quantity(NamedTuple):
    """A number with its unit. `value` and `precision` are in the kind's own unit: seconds, bytes, …"""

    text: str
    kind: str
    value: float
    precision: float
    """Half a unit of the last digit that is written."""


def unfounded(evidence: str, shown: str) -> tuple[str, ...]:
    """Return the quantities of the evidence, as written, that do not occur in the text that the agent was shown.

    A quantity may be rounded or have another unit, and a share may be the complement of a shown share.
    """
    known = list(_quantities(shown))
    return tuple(
        dict.fromkeys(each.text for each in _quantities(evidence) if not any(_is_same(each, other) for other in known))
    )


def _quantities(text: str) -> list[Quantity]:
    found = []
    for match in _QUANTITY.finditer(text):
        unit = match["unit"].lower()
        kind = next(name for name, units in _UNITS.items() if unit in units)
        size = _UNITS[kind][unit]
        digits = match["number"].replace(",", "")
        last = 10.0 ** -len(digits.partition(".")[2])
        found.append(Quantity(match[0], kind, float(digits) * size, 0.5 * last * size))
    return found


def _is_same(said: Quantity, shown: Quantity) -> bool:
    """Return whether a quantity stands for another one that was shown."""
    if said.kind != shown.kind:
        return False
    values = (shown.value, 1.0 - shown.value) if said.kind == "share" else (shown.value,)
    slack = max(said.precision, shown.precision, LOOSE * said.value)
    return any(abs(said.value - value) <= slack * 1.001 for value in values)
