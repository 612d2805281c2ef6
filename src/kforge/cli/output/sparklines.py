"""Draws timing samples as one line of text, for a terminal."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from kforge.cli.output import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.records import Receipt

BARS = "▁▂▃▄▅▆▇█"
"""Bars from the lowest to the highest value. A terminal that cannot show them gets ASCII (`encoding.py`)."""
WIDTH = 32
"""Most bars of a line, so that the bars and the text around them fit into 80 columns."""


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Return one bar for each value, or for the median of neighbouring values where there are more than `width`.

    Empty if there are no values. Bars are all lowest if the values are equal.
    """
    if not values:
        return ""
    count = min(width, len(values))
    cuts = [round(place * len(values) / count) for place in range(count + 1)]
    parts = [median(values[begin:end]) for begin, end in pairwise(cuts)]
    low, high = min(parts), max(parts)
    if high <= low:
        return BARS[0] * count
    return "".join(BARS[min(int((part - low) / (high - low) * len(BARS)), len(BARS) - 1)] for part in parts)


def timing_lines(receipt: Receipt) -> Iterator[str]:
    """Yield a line for each timed side: its samples in the order of measurement, their range and number."""
    sides = {name: receipt.samples.get(name, ()) for name in ("candidate", "eager", "compile")}
    for name, samples in sides.items():
        if samples and min(samples) > 0:
            said = f"{words.duration(min(samples))} to {words.duration(max(samples))}, {len(samples)} blocks"
            yield f"  {words.BASELINES.get(name, 'kernel'):13} {sparkline(samples)}  {said}"
