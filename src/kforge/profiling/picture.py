"""Draws a profile as a PNG image, for models and people that prefer images. (matplotlib, when called)

Left: one call as a strip, in order of execution if the profile has a timeline, and a row for each hot spot. Right: the
roofline, and the time of a call beside the least time that the device allows. The image depends only on the profile: it
contains no date and no version, and ignores the user's settings.

Names in a profile come from foreign programs. So no text is read as a formula, and a character that the font lacks
becomes a question mark.
"""

from __future__ import annotations

import importlib.util
import io
from typing import TYPE_CHECKING, Any, NamedTuple

from kforge.errors import InputError
from kforge.profiling.digest import LEAST_ROW_SHARE, without_idle
from kforge.profiling.rows import OTHER
from kforge.profiling.wording import amount, cut, percent, time
from kforge.records import HotSpot
from kforge.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.records import ImportedProfile, Profile, Roofline, Span, Workload

WIDTH, HEIGHT = 1200, 800
"""Size in pixels, about the size to which models scale an image."""
_DPI = 100
_FONT = "DejaVu Sans"
"""The font that ships with matplotlib, so that the image is the same on every machine."""
MOST_ROWS = 12
"""Most hot spots that are drawn."""
_INK, _FAINT, _REST = "#1a1a1a", "#5f5f5f", "#b4b4b4"
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#a6761d")
"""Colours that colour-blind readers can tell apart. They repeat after eight rows."""
_LEFT, _RIGHT, _PLOT, _TITLES = 0.025, 0.60, 0.675, 0.814
"""Where the two halves and the plots of the right half begin, and the height of both titles, as shares of the image."""
_MEASURED, _ALLOWED = "#d55e00", "#0072b2"


class _Bar(NamedTuple):
    """A hot spot and its colour."""

    spot: HotSpot
    colour: str


def check_installed(asked_by: str) -> None:
    """Raise InputError with the command that installs matplotlib if it is missing. Nothing is imported."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(f"{asked_by} needs matplotlib, which is not installed: pip install 'kforge[pictures]'")


def draw(profile: Profile | ImportedProfile, workload: Workload | None = None) -> bytes:
    """Return the profile as a PNG image of 1200 by 800 pixels.

    `workload` places the call on the roofline; an imported profile may have none. Raises InputError if matplotlib is
    not installed.
    """
    check_installed("a picture of a profile")
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Figures are made without pyplot, which would keep references to them and look for a display.
    with style.context(["default", {"font.family": _FONT, "font.size": 11}], after_reset=True):
        figure = Figure(figsize=(WIDTH / _DPI, HEIGHT / _DPI), dpi=_DPI, facecolor="white")
        canvas = FigureCanvasAgg(figure)
        page = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        page.axis("off")
        for height, text, size in _headline(profile):
            _write(page, _LEFT, height, text, size=size)
        _draw_hot_spots(figure, profile)
        _draw_right(figure, profile.seconds, profile.roofline, workload)
        image = io.BytesIO()
        canvas.print_figure(image, format="png", dpi=_DPI, metadata={"Software": None})
    return image.getvalue()


def _headline(profile: Profile | ImportedProfile) -> Iterator[tuple[float, str, int]]:
    """Yield height, text and font size of each line at the top."""
    seconds = profile.seconds
    told = f"{time(seconds)} a call" if seconds else "time of a call not known"
    if profile.roofline is not None:
        told += f"  ·  {cut(profile.roofline.peaks.device, 60)}"
    yield 0.955, told, 17
    yield 0.915, cut(f"Bottleneck: {profile.bottleneck or 'not named by any rule'}", 110), 12
    yield 0.880, cut(f"Profiled with {profile.tool}", 120), 10


# --- hot spots ----------------------------------------------------------------------------------------------


def _draw_hot_spots(figure: Any, profile: Profile | ImportedProfile) -> None:
    """Draw the left half: the call as a strip, and a row for each hot spot."""
    rows = _rows(profile.hot_spots)
    axes = figure.add_axes((_LEFT, 0.03, 0.535, 0.80))
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(0.0, 1.0)
    axes.axis("off")
    title = "Hot spots of the profiled run, largest first (not in order of execution)"
    if profile.timeline:
        title = f"One profiled call in order of execution, {time(_end(profile.timeline))}; below, its hot spots"
    _write(figure.axes[0], _LEFT, _TITLES, title, size=12)
    if not rows:
        _write(axes, 0.0, 0.90, "The profiler recorded none.", size=12, color=_FAINT)
        return
    if profile.timeline:
        _draw_timeline(axes, profile.timeline, rows)
    else:
        _draw_strip(axes, rows)
    step = min(0.84 / len(rows), 0.12)
    longest = max(row.spot.share for row in rows) or 1.0
    for number, row in enumerate(rows):
        top = 0.865 - number * step
        spot = row.spot
        _write(axes, 0.0, top, cut(spot.name, 68), size=11)
        length = 0.66 * spot.share / longest
        axes.barh(top - 0.033, length, height=min(0.45 * step, 0.028), left=0.0, color=row.colour)
        told = f"{percent(spot.share)}   {time(spot.seconds)}   {spot.calls}x"
        _write(axes, length + 0.012, top - 0.033, told, size=10.5, color=_FAINT)


def _draw_timeline(axes: Any, timeline: Sequence[Span], rows: Sequence[_Bar]) -> None:
    """Draw the spans of a call at their positions in time, in the colours of the rows. Gaps stay white."""
    colours = {row.spot.name: row.colour for row in rows}
    whole = _end(timeline) or 1.0
    axes.barh(0.925, 1.0, height=0.045, color="none", edgecolor=_REST, linewidth=0.8)
    for span in timeline:
        colour = colours.get(span.name, _REST)
        axes.barh(0.925, span.seconds / whole, height=0.045, left=span.start / whole, color=colour)


def _end(timeline: Sequence[Span]) -> float:
    """Return the seconds after which the last span of a call ended."""
    return max(span.start + span.seconds for span in timeline)


def _draw_strip(axes: Any, rows: Sequence[_Bar]) -> None:
    """Draw the whole call as one strip, in the colours of the rows."""
    left = 0.0
    for row in rows:
        width = min(row.spot.share, 1.0 - left)
        axes.barh(0.925, width, height=0.045, left=left, color=row.colour, edgecolor="white", linewidth=1.0)
        if width > 0.08:
            _write(axes, left + width / 2, 0.925, percent(row.spot.share), size=10.5, color="white", centre=True)
        left += width


def _rows(spots: Sequence[HotSpot]) -> list[_Bar]:
    """Return the rows to draw: those above one percent, and one for all others.

    Idle time of the profiled run is left out, as on the page of text.
    """
    known = sorted((spot for spot in without_idle(spots) if spot.name != OTHER), key=lambda spot: -spot.share)
    shown = [spot for spot in known if spot.share >= LEAST_ROW_SHARE][:MOST_ROWS]
    rows = [_Bar(spot, _COLOURS[number % len(_COLOURS)]) for number, spot in enumerate(shown)]
    rest = [spot for spot in without_idle(spots) if spot not in shown]
    if rest and (share := sum(spot.share for spot in rest)) >= LEAST_ROW_SHARE:
        together = HotSpot(
            name=f"all others ({len(rest)} row{'s' * (len(rest) > 1)} of the profile)",
            calls=sum(spot.calls for spot in rest),
            seconds=sum(spot.seconds for spot in rest),
            share=share,
        )
        rows.append(_Bar(together, _REST))
    return rows


# --- the roofline -------------------------------------------------------------------------------------------


def _draw_right(figure: Any, seconds: float | None, roofline: Roofline | None, workload: Workload | None) -> None:
    """Draw the right half: the roofline if it is known, and the least times."""
    if roofline is None:
        _write(figure.axes[0], _RIGHT, _TITLES, "Roofline", size=12)
        _write_lines(figure, 0.77, [("Not known: no problem was given.", _FAINT)])
        return
    if workload is not None and workload.flops and workload.bytes_moved and roofline.compute_seconds:
        _draw_roofline(figure, seconds, roofline, workload)
        _draw_floors(figure, (_PLOT, 0.03, 0.31, 0.175), seconds, roofline)
        return
    _draw_floors(figure, (_PLOT, 0.56, 0.31, 0.22), seconds, roofline)
    lines = [(f"peak of the device: {amount(roofline.peaks.bytes_per_second, 'B/s')}", _ALLOWED)]
    if workload is not None:
        if seconds:
            achieved = workload.bytes_moved / seconds
            lines.append((f"this program: {amount(achieved, 'B/s')}, if it moves all data once", _MEASURED))
        lines.append((f"all data once: {amount(workload.bytes_moved, 'B')}", _FAINT))
        if not workload.flops:
            lines.append(("Only memory is a roof here: torch counts FLOPs", _FAINT))
            lines.append(("of matmul-like operators, and found none.", _FAINT))
    _write_lines(figure, 0.50, lines)


def _draw_roofline(figure: Any, seconds: float | None, roofline: Roofline, workload: Workload) -> None:
    """Draw FLOP/s against FLOP/B, with a point for the call if its time is known."""
    bandwidth = roofline.peaks.bytes_per_second
    peak = workload.flops / roofline.compute_seconds  # of the precision that the program declared
    ridge, intensity = peak / bandwidth, workload.flops / workload.bytes_moved
    allowed = min(peak, bandwidth * intensity)
    achieved = workload.flops / seconds if seconds else allowed
    left, right = min(ridge, intensity) / 8, max(ridge, intensity) * 8
    axes = figure.add_axes((_PLOT, 0.435, 0.31, 0.35))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(min(achieved, allowed, bandwidth * left) / 2, max(peak, achieved) * 4)
    axes.plot([left, ridge, right], [bandwidth * left, peak, peak], color=_ALLOWED, linewidth=2.5)
    axes.plot([intensity, intensity], [achieved, allowed], color=_FAINT, linewidth=1.2, linestyle="--")
    axes.plot([intensity], [allowed], marker="_", markersize=14, color=_ALLOWED)
    axes.set_xlabel("arithmetic intensity, FLOP/B", fontsize=10.5)
    axes.set_ylabel("FLOP/s", fontsize=10.5)
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.tick_params(labelsize=10)
    if seconds:
        axes.plot([intensity], [achieved], marker="o", markersize=10, color=_MEASURED)
    title = f"Roofline: {roofline.bound} bound at {intensity:.3g} FLOP/B"
    _write(figure.axes[0], _RIGHT, _TITLES, title, size=12)
    lines = [(f"roof: {amount(bandwidth, 'B/s')}, then {amount(peak, 'FLOP/s')}", _ALLOWED)]
    if seconds:
        # a share above 100 % would mislead: the data stays in a cache, or the program does fewer operations
        reached = f"{percent(achieved / allowed)} of the roof" if achieved <= allowed else "above the roof"
        lines.append((f"this program: {amount(achieved, 'FLOP/s')}, {reached}", _MEASURED))
    _write_lines(figure, 0.345, lines)


def _draw_floors(
    figure: Any, place: tuple[float, float, float, float], seconds: float | None, roofline: Roofline
) -> None:
    """Draw the time of a call beside the least times that memory and arithmetic allow."""
    bars = [("memory floor", roofline.memory_seconds, _ALLOWED)]
    if roofline.compute_seconds > 0:
        bars.append(("compute floor", roofline.compute_seconds, _ALLOWED))
    if seconds:
        bars.insert(0, ("one call", seconds, _MEASURED))
    axes = figure.add_axes(place)
    longest = max(length for _, length, _ in bars) or 1.0
    axes.set_xlim(0.0, longest * 1.45)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_yticks(range(len(bars)), labels=[name for name, _, _ in bars], fontsize=10.5)
    axes.set_xticks([])
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    for number, (_, length, colour) in enumerate(bars):
        axes.barh(number, length, height=0.6, color=colour)
        _write(axes, length + 0.02 * longest, number, time(length), size=10.5)
    _write(
        figure.axes[0], _RIGHT, place[1] + place[3] + 0.034, "Time of a call, and the least that is possible", size=12
    )


# --- texts --------------------------------------------------------------------------------------------------


def _write(axes: Any, x: float, y: float, text: str, *, size: float, color: str = _INK, centre: bool = False) -> None:
    across = "center" if centre else "left"
    axes.text(
        x, y, _drawable(text), fontsize=size, color=color, ha=across, va="center", parse_math=False, clip_on=False
    )


def _write_lines(figure: Any, top: float, lines: Sequence[tuple[str, str]]) -> None:
    """Write lines of text, each with its colour, into the right half."""
    for number, (text, colour) in enumerate(lines):
        _write(figure.axes[0], _RIGHT, top - 0.03 * number, text, size=11, color=colour)


def _drawable(text: str) -> str:
    """Return the text with hidden characters escaped, and a question mark for each character that the font lacks."""
    from matplotlib.font_manager import findfont, get_font

    font = get_font(findfont(_FONT))
    return "".join(letter if font.get_char_index(ord(letter)) else "?" for letter in visible(text))
