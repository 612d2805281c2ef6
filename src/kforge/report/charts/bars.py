"""The distribution of speedups, as stacked bars on a logarithmic axis."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from kforge.phrases import NOT_MEASURED
from kforge.report.charts.palette import colour_class
from kforge.report.charts.svg import (
    FLOOR,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    AxisScale,
    chart,
    doublings,
    rounds,
    tag,
    text,
    times,
    x_axis,
    y_axis,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

ORDER = ("faster", "cannot tell", "slower")
"""Findings from the bottom of a bar to its top."""
PARTS = 4
"""Bars for each doubling of the speedup: wide enough to be seen, narrow enough to show a shape."""
ROOM = 156
"""Width of the columns on the left for problems without a speedup."""
APART = {"none": ("generation-failure", 20), NOT_MEASURED: ("not-measured", 86)}
"""Problems without a speedup: the colour of each kind, and the middle of its column from the left edge of the plot."""


def distribution(speedups: Sequence[tuple[float, str]], none: int, not_measured: int, label: str) -> Markup:
    """Draw the number of problems by their speedup over a baseline.

    `speedups` holds the median and the finding of each correct program that was measured. `none` is the number of
    problems without a correct program, and `not_measured` that of problems whose program was not measured: both have
    bars of their own. `label` names the baseline.
    """
    apart = {"none": none, NOT_MEASURED: not_measured}
    bins: Counter[tuple[int, str]] = Counter()
    for value, finding in speedups:
        bins[math.floor(math.log2(value) * PARTS + 1e-9), finding] += 1
    medians = [value for value, _ in speedups]
    ticks = doublings(min([0.5, *medians]), max([2.0, *medians]))
    totals: Counter[int] = Counter()
    for (place, _), count in bins.items():
        totals[place] += count
    high = rounds(max([*apart.values(), *totals.values(), 1]))
    whole = [value for value in high if value == int(value)]
    x = AxisScale(ticks[0], ticks[-1], LEFT + ROOM, WIDTH - RIGHT, is_log=True)
    y = AxisScale(0, high[-1], FLOOR, TOP)
    parts = [
        y_axis(y, whole, lambda value: f"{value:.0f}", "problems", x.end),
        x_axis(x, ticks, times, f"median speedup over {label}", FLOOR),
    ]
    width = x(2 ** (1 / PARTS)) - x(1.0)
    for place in sorted(totals):
        below = 0
        for finding in ORDER:
            if not (count := bins[place, finding]):
                continue
            top, bottom = y(below + count), y(below)
            said = f"{count} {finding}: {times(2 ** (place / PARTS))} to {times(2 ** ((place + 1) / PARTS))}"
            left = max(x(2 ** (place / PARTS)), x.start)
            parts.append(
                tag(
                    "rect",
                    tag("title", said),
                    x=left + 0.5,
                    y=top,
                    width=max(width - 1, 1),
                    height=bottom - top,
                    class_=f"f-{colour_class(finding)}",
                )
            )
            below += count
    parts.append(tag("line", x1=x(1), x2=x(1), y1=TOP, y2=FLOOR, class_="one"))
    for name, count in apart.items():
        colour, middle = APART[name]
        if count:
            height = FLOOR - y(count)
            about = tag("title", f"{count} {name}")
            where: dict[str, float] = {"x": LEFT + middle - 13, "y": y(count), "width": 26, "height": height}
            parts.append(tag("rect", about, class_=f"f-{colour} soft", **where))
            parts.append(text(LEFT + middle, y(count) - 4, str(count), anchor="middle", class_="strong"))
        parts.append(text(LEFT + middle, FLOOR + 15, name, anchor="middle", class_="muted"))
    seen = [finding for finding in ORDER if any(kind == finding for _, kind in bins)]
    at = x.end
    for finding in reversed(seen):
        count = sum(number for (_, kind), number in bins.items() if kind == finding)
        said = f"{count} {finding}"
        parts.append(text(at, TOP - 14, said, anchor="end", class_=f"f-{colour_class(finding)} strong"))
        at -= 6.8 * len(said) + 10
    return chart(f"Distribution of speedups over {label}", *parts)
