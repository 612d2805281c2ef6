"""Charts of single measurements: programs against the roofline, timing samples, and the attempts of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from kforge.phrases import duration
from kforge.report.charts.palette import colour_class
from kforge.report.charts.svg import (
    BOTTOM,
    FLOOR,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    AxisScale,
    chart,
    decades,
    doublings,
    path,
    rounds,
    tag,
    text,
    times,
    x_axis,
    y_axis,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

SHARES = (1.0, 0.5, 0.1, 0.01)
"""Shares of the roofline at which a line is drawn."""
MOST_DOTS = 400
"""Most samples of one side that are drawn; more lie on top of each other, and only make the file large."""
SIDES = {"candidate": "correct", "eager": "eager", "compile": "compile"}
"""The sides of a measurement whose samples are seconds per call, with their colours."""


@dataclass(frozen=True)
class RoofPoint:
    """One program: the least seconds of a call that the device allows, and its own seconds."""

    name: str
    least: float
    seconds: float
    finding: str
    is_memory_bound: bool


def roofline(points: Sequence[RoofPoint]) -> Markup:
    """Draw the time of each program against the least time that its device allows, both logarithmic.

    The lowest diagonal is the roofline. Time is drawn and not FLOP/s, because many problems have no counted arithmetic.
    """
    values = [value for point in points for value in (point.least, point.seconds)]
    ticks = decades(min(values, default=1e-5), max(values, default=1e-3))
    x = AxisScale(ticks[0], ticks[-1], LEFT + 6, WIDTH - RIGHT - 46, is_log=True)
    y = AxisScale(ticks[0], ticks[-1], FLOOR, TOP, is_log=True)
    parts = [
        y_axis(y, ticks, duration, "time a call", x.end),
        x_axis(x, ticks, duration, "least time a call that the device allows", FLOOR),
    ]
    for share in SHARES:
        # the line ends at the top or at the right edge, whichever it meets first
        end = min(ticks[-1], ticks[-1] * share)
        if end <= ticks[0]:
            continue
        begin = max(ticks[0], ticks[0] * share)
        parts.append(
            path([(x(begin), y(begin / share)), (x(end), y(end / share))], "axis line" if share == 1 else "one")
        )
        parts.append(text(x(end) + 4, y(end / share) + (10 if share == 1 else -3), f"{share:.0%}", class_="muted"))
    for point in points:
        share = point.least / point.seconds
        bound = "memory" if point.is_memory_bound else "arithmetic"
        said = f"{point.name}: {duration(point.seconds)} a call, {share:.0%} of the roofline, bound by {bound}"
        shape = {
            "class_": f"f-{colour_class(point.finding)} soft"
            if not point.is_memory_bound
            else f"f-{colour_class(point.finding)}"
        }
        at_x, at_y = x(point.least), y(point.seconds)
        if point.is_memory_bound:
            parts.append(tag("circle", tag("title", said), cx=at_x, cy=at_y, r=3.6, **shape))
        else:
            parts.append(tag("rect", tag("title", said), x=at_x - 3.3, y=at_y - 3.3, width=6.6, height=6.6, **shape))
    return chart("Time of each program against the least time that the device allows", *parts)


def samples(sides: Mapping[str, Sequence[float]]) -> Markup:
    """Draw the seconds per call of each timed block in the order of measuring, with a line at each median.

    Sides that are not seconds per call, such as the load by other processes, are left out.
    """
    drawn = {name: list(sides[name]) for name in SIDES if sides.get(name)}
    height, floor = 190, 190 - 28
    values = [value for side in drawn.values() for value in side]
    if not values:
        return chart("Timing samples", text(WIDTH / 2, 60, "no samples", anchor="middle"), height=120)
    high = rounds(max(values) * 1e6)
    y = AxisScale(0, high[-1] / 1e6, floor, TOP)
    x = AxisScale(0, max(len(side) for side in drawn.values()) - 1, LEFT + 10, WIDTH - RIGHT - 112)
    parts = [
        y_axis(
            y, [value / 1e6 for value in high], lambda value: duration(value) if value else "0", "time a call", x.end
        ),
        text((x.start + x.end) / 2, floor + 20, "timed blocks, in order", anchor="middle", class_="muted"),
        tag("line", x1=LEFT, x2=x.end, y1=floor, y2=floor, class_="axis"),
    ]
    for name, side in drawn.items():
        colour, middle = colour_class(SIDES[name]), median(side)
        parts.append(tag("line", x1=LEFT, x2=x.end, y1=y(middle), y2=y(middle), class_=f"thin s-{colour}"))
        parts += (
            tag("circle", cx=x(number), cy=y(value), r=2.4, class_=f"f-{colour} soft")
            for number, value in enumerate(side[:MOST_DOTS])
        )
        parts.append(text(x.end + 6, y(middle) + 4, f"{name} {duration(middle)}", class_=f"f-{colour} strong"))
    return chart("Timing samples of each block", *parts, height=height)


@dataclass(frozen=True)
class Mark:
    """One attempt: its speedup over eager with its interval, or its state where it has none."""

    index: int
    state: str
    speedup: tuple[float, float, float] | None
    """Low, median and high; None where the program was not timed."""
    is_best: bool
    said: str


def attempts(marks: Sequence[Mark]) -> Markup:
    """Draw the speedup over eager of each attempt, with its interval; failures stand at the bottom."""
    height, floor = 210, 210 - BOTTOM
    known = [value for mark in marks if mark.speedup is not None for value in mark.speedup]
    ticks = doublings(min([0.5, *known]), max([2.0, *known]))
    y = AxisScale(math.log2(ticks[0]), math.log2(ticks[-1]), floor - 22, TOP)
    x = AxisScale(-0.5, max(len(marks), 4) - 0.5, LEFT, WIDTH - RIGHT)
    parts = [
        y_axis(y, [math.log2(tick) for tick in ticks], lambda value: times(2**value), "speedup over eager", x.end),
        tag("line", x1=LEFT, x2=x.end, y1=y(0), y2=y(0), class_="one"),
        tag("line", x1=LEFT, x2=x.end, y1=floor, y2=floor, class_="axis"),
        text((x.start + x.end) / 2, floor + 32, "attempt", anchor="middle", class_="muted"),
    ]
    every = max(1, math.ceil(len(marks) / 16))
    for number, mark in enumerate(marks):
        at, colour = x(number), colour_class(mark.state)
        if number % every == 0:
            parts.append(text(at, floor + 15, str(mark.index), anchor="middle", class_="muted"))
        if mark.speedup is None:
            parts.append(
                tag("rect", tag("title", mark.said), x=at - 4, y=floor - 13, width=8, height=8, class_=f"f-{colour}")
            )
            continue
        low, middle, high = (y(math.log2(value)) for value in mark.speedup)
        parts.append(tag("line", x1=at, x2=at, y1=low, y2=high, class_=f"line s-{colour}"))
        parts.append(
            tag(
                "circle",
                tag("title", mark.said),
                cx=at,
                cy=middle,
                r=4.5 if mark.is_best else 3.2,
                class_=f"f-{colour}",
            )
        )
        if mark.is_best:
            parts.append(text(at, high - 6, f"best {times(mark.speedup[1])}", anchor="middle", class_="strong halo"))
    return chart("Speedup of each attempt over eager", *parts, height=height)
