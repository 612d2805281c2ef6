"""The parts that all charts are made of: elements, scales and axes.

Text becomes markup only in `tag`, which escapes it. Names and messages of candidates go through `visible` first, so
that no character in them changes how the rest is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from kforge.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

WIDTH = 460
"""Width of a chart in its own units. On a phone it is drawn a little smaller, and its text stays readable."""
HEIGHT = 300
"""Height of a chart in its own units."""
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 28, 40
"""Margins around the plot, for labels of the axes."""
FLOOR = HEIGHT - BOTTOM
"""The coordinate of the axis at the bottom."""


def tag(name: str, *content: str | Markup, **attributes: str | float) -> Markup:
    """Return an element. Content that is not markup yet, and every attribute, is escaped.

    A trailing underscore of an attribute's name is removed (`class_`), and other underscores become hyphens.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"' for key, value in attributes.items()
    )
    inside = "".join(str(escape(each if isinstance(each, Markup) else visible(each))) for each in content)
    return Markup(f"<{name}{written}>{inside}</{name}>" if content else f"<{name}{written}/>")  # noqa: S704 - escaped


def _number(value: str | float) -> str:
    """Return the text of an attribute. Coordinates have two decimals at most: more make files large and are not
    seen."""
    return visible(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def join(parts: Iterable[Markup]) -> Markup:
    """Return these elements one after the other."""
    return Markup("").join(parts)


def text(x: float, y: float, content: str, *, anchor: str = "start", class_: str = "") -> Markup:
    """Return one line of text. `anchor` says which point of it is at `x`: `start`, `middle` or `end`."""
    return tag("text", content, x=x, y=y, text_anchor=anchor, **({"class_": class_} if class_ else {}))


def path(points: Sequence[tuple[float, float]], class_: str, *, closed: bool = False) -> Markup:
    """Return straight lines through these points."""
    steps = "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
    return tag("path", d=f"M{steps}{'Z' if closed else ''}", class_=class_)


def chart(title: str, *parts: Markup, width: float = WIDTH, height: float = HEIGHT) -> Markup:
    """Return a whole drawing. Screen readers read its `title`."""
    return tag(
        "svg", tag("title", title), *parts, xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_number(width)} {_number(height)}", class_="chart", role="img", aria_label=title,
    )  # fmt: skip


@dataclass(frozen=True)
class AxisScale:
    """Maps values to coordinates, linearly or by their logarithms."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log(each) if self.is_log else each for each in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def doublings(low: float, high: float) -> list[float]:
    """Return powers of two that include both values, at most about eight of them."""
    first, last = math.floor(math.log2(low) + 1e-9), math.ceil(math.log2(high) - 1e-9)
    step = max(1, math.ceil((last - first) / 8))
    first = math.floor(first / step) * step
    return [2.0**power for power in range(first, last + step, step)]


def decades(low: float, high: float) -> list[float]:
    """Return powers of ten that include both values."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def rounds(high: float) -> list[float]:
    """Return about five round values from 0 to at least `high`."""
    if high <= 0:
        return [0.0, 1.0]
    size = 10 ** math.floor(math.log10(high))
    step = next(size * factor for factor in (0.2, 0.25, 0.5, 1.0, 2.0) if high / (size * factor) <= 5.001)
    return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]


def times(value: float) -> str:
    """Return a speedup as an axis names it: `0.5×`, `2×`."""  # noqa: RUF002 - the sign of multiplication
    return f"{value:.3g}×"  # noqa: RUF001


def x_axis(scale: AxisScale, ticks: Sequence[float], spell: Callable[[float], str], label: str, y: float) -> Markup:
    """Return the axis at the bottom: its line, the grid above it, its tick labels and its label."""
    parts = [tag("line", x1=scale.start, x2=scale.end, y1=y, y2=y, class_="axis")]
    for value in ticks:
        x = scale(value)
        parts.append(tag("line", x1=x, x2=x, y1=TOP, y2=y, class_="grid"))
        parts.append(text(x, y + 15, spell(value), anchor="middle", class_="muted"))
    parts.append(text((scale.start + scale.end) / 2, y + 32, label, anchor="middle", class_="muted"))
    return join(parts)


def y_axis(scale: AxisScale, ticks: Sequence[float], spell: Callable[[float], str], label: str, right: float) -> Markup:
    """Return the axis on the left: the grid beside it, its tick labels, and its label above it."""
    parts = []
    for value in ticks:
        y = scale(value)
        parts.append(tag("line", x1=LEFT, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(text(LEFT - 6, y + 4, spell(value), anchor="end", class_="muted"))
    parts.append(text(2, TOP - 14, label, class_="muted"))
    return join(parts)


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places for labels that are at least `gap` apart, close to the given ones and inside the bounds."""
    order = sorted(range(len(places)), key=places.__getitem__)
    found = list(places)
    for before, here in zip([None, *order], order, strict=False):
        least = low if before is None else found[before] + gap
        found[here] = max(places[here], least)
    above = high
    for here in reversed(order):
        found[here] = min(found[here], above)
        above = found[here] - gap
    return found
