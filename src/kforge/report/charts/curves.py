"""Step curves: fast_p, and the cost of solved problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.phrases import BASELINES
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
    join,
    path,
    rounds,
    spread,
    tag,
    text,
    times,
    x_axis,
    y_axis,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from markupsafe import Markup

    from kforge.metrics import CostPoint, FastCurve

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Ticks of an axis of shares."""


@dataclass(frozen=True)
class Curve:
    """A step curve. `band` holds x values, each with the lower and the upper bound from there on."""

    colour: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()


def name_of(curve: FastCurve) -> str:
    """Return the name of the baselines that a curve is over."""
    return BASELINES[curve.baselines[0]] if len(curve.baselines) == 1 else "the faster of both"


def percent(share: float) -> str:
    return f"{share:.0%}"


def steps(points: Sequence[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    """Return the corners of a curve that keeps each value until the next point, and the last one until `end`."""
    corners: list[tuple[float, float]] = []
    for x, y in points:
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    return [*corners, (end, corners[-1][1])] if corners else []


def _drawn(curves: Sequence[Curve], x: AxisScale, y: AxisScale) -> Markup:
    """Return the curves with their bands. All bands are drawn below all lines."""
    bands, lines = [], []
    for curve in curves:
        colour = colour_class(curve.colour)
        if curve.band:
            low = steps([(x(at), y(low)) for at, low, _ in curve.band], x.end)
            high = steps([(x(at), y(high)) for at, _, high in curve.band], x.end)
            bands.append(path([*low, *reversed(high)], f"band f-{colour}", closed=True))
        corners = steps([(x(at), y(share)) for at, share in curve.points], x.end)
        lines.append(path(corners, f"line s-{colour}"))
    return join([*bands, *lines])


def fast_p(curves: Sequence[FastCurve]) -> Markup:
    """Draw the share of problems that are strictly over each speedup: a step curve with its band for each baseline.

    The value at p = 0, the share of correct programs, is a mark at the left edge, because a logarithmic axis has no
    zero. A curve of a baseline against which nothing was measured is left out.
    """
    measured = [point.p for curve in curves for point in curve.points if point.p > 0 and point.share.value > 0]
    highest = max(2.0, max(measured, default=1.0) * 1.1)
    ticks = doublings(0.25, highest)
    labels = 124
    x = AxisScale(ticks[0], ticks[-1], LEFT + 36, WIDTH - RIGHT - labels, is_log=True)
    y = AxisScale(0, 1, FLOOR, TOP)
    parts = [
        y_axis(y, SHARES, percent, "share of problems", x.end),
        x_axis(x, ticks, times, "speedup p over the baseline", FLOOR),
        tag("line", x1=x(1), x2=x(1), y1=TOP, y2=FLOOR, class_="one"),
    ]
    drawn, names, places, sure = list[Curve](), list[str](), list[float](), list[str]()
    for curve in curves:
        points = [point for point in curve.points if point.p > 0]
        zero = curve.at(0.0)
        colour = curve.baselines[0] if len(curve.baselines) == 1 else "fastest"
        at_one = curve.at(1.0)
        if not points or not curve.measured or zero is None or at_one is None:
            continue
        drawn.append(
            Curve(colour, [(p.p, p.share.value) for p in points], [(p.p, p.share.low, p.share.high) for p in points])
        )
        parts.append(tag("circle", cx=LEFT + 6, cy=y(zero.share.value), r=3, class_="f-correct"))
        names.append(colour)
        sure.append(f"{name_of(curve)} {at_one.share.value:.0%}")
        places.append(y(at_one.share.value))
    parts.append(_drawn(drawn, x, y))
    parts.append(text(LEFT + 6, FLOOR + 15, "0", anchor="middle", class_="muted"))
    if sure:
        parts.append(text(x.end + 8, TOP + 2, "share over 1×", class_="muted"))  # noqa: RUF001
    for colour, said, place, at in zip(names, sure, spread(places, 15, TOP + 18, FLOOR - 4), places, strict=True):
        parts.append(path([(x(1), at), (x.end + 4, place - 4)], "thin grid"))
        parts.append(tag("circle", cx=x(1), cy=at, r=3, class_=f"f-{colour_class(colour)}"))
        parts.append(text(x.end + 8, place, said, class_=f"f-{colour_class(colour)} strong"))
    return chart("fast_p: share of problems whose speedup is over p", *parts)


def solved(points: Sequence[CostPoint], label: str, spell: Callable[[float], str]) -> Markup:
    """Draw the share of problems that are solved within a limit of cost per problem. `label` names the cost."""
    ticks = rounds(max((point.spent for point in points), default=1.0))
    x, y = AxisScale(0, ticks[-1], LEFT, WIDTH - RIGHT - 40), AxisScale(0, 1, FLOOR, TOP)
    corners = [(0.0, 0.0), *((point.spent, point.share) for point in points)]
    parts = [
        y_axis(y, SHARES, percent, "share of problems with a correct program", x.end),
        x_axis(x, ticks, spell, label, FLOOR),
        _drawn([Curve("correct", corners)], x, y),
    ]
    if points:
        last = points[-1]
        parts.append(text(x.end + 6, y(last.share) + 4, percent(last.share), class_="f-correct strong"))
    return chart(f"Share of problems solved, by {label}", *parts)
