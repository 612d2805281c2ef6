"""The distribution of speedups, as stacked bars on a logarithmic axis."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

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

ORDER = ("faster", "cannot tell", "slower", "not measured")
"""Findings from the bottom of a bar to its top."""
PARTS = 4
"""Bars for each doubling of the speedup: wide enough to be seen, narrow enough to show a shape."""
ROOM = 58
"""Width of the column on the left for problems without a speedup."""


def distribution(speedups: Sequence[tuple[float, str]], others: int, label: str) -> Markup:
    """Draw the number of problems by their speedup over a baseline.

    `speedups` holds the median and the finding of each correct program that was timed; `others` is the number of
    problems that have none, which get a bar of their own. `label` names the baseline.
    """
    bins: Counter[tuple[int, str]] = Counter()
    for value, finding in speedups:
        bins[math.floor(math.log2(value) * PARTS + 1e-9), finding] += 1
    medians = [value for value, _ in speedups]
    ticks = doublings(min([0.5, *medians]), max([2.0, *medians]))
    totals: Counter[int] = Counter()
    for (place, _), count in bins.items():
        totals[place] += count
    high = rounds(max([others, *totals.values(), 1]))
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
    if others:
        parts.append(
            tag(
                "rect",
                tag("title", f"{others} without a speedup"),
                x=LEFT + 8,
                y=y(others),
                width=26,
                height=FLOOR - y(others),
                class_="f-generation-failure soft",
            )
        )
        parts.append(text(LEFT + 21, y(others) - 4, str(others), anchor="middle", class_="strong"))
    parts.append(text(LEFT + 21, FLOOR + 15, "none", anchor="middle", class_="muted"))
    seen = [finding for finding in ORDER if any(kind == finding for _, kind in bins)]
    at = x.end
    for finding in reversed(seen):
        count = sum(number for (_, kind), number in bins.items() if kind == finding)
        said = f"{count} {finding}"
        parts.append(text(at, TOP - 14, said, anchor="end", class_=f"f-{colour_class(finding)} strong"))
        at -= 6.8 * len(said) + 10
    return chart(f"Distribution of speedups over {label}", *parts)
