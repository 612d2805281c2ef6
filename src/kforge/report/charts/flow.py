"""Draws how the states of problems change from one iteration to the next one."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from markupsafe import Markup

from kforge.metrics import ENDED, NO_ATTEMPT, START
from kforge.report.charts.palette import colour_class
from kforge.report.charts.svg import HEIGHT, WIDTH, chart, spread, tag, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.metrics import StateChange

STATES = (
    "correct", "no_kernel", "mismatch", "runtime_error", "compilation_failure", "generation_failure", "rejected",
)  # fmt: skip
"""States from the top of a column to its bottom: the best state first."""
REST = "ended as "
"""Prefix of the states of problems whose run has ended: `ended as correct`. Without any attempt it is `no_attempt`."""
ORDER = (
    *(f"{REST}{state}" for state in STATES[:2]), *STATES, *(f"{REST}{state}" for state in STATES[2:]), NO_ATTEMPT
)  # fmt: skip
"""All states from the top of a column to its bottom; those of ended runs are at the top and at the bottom."""
LARGEST = 10
"""Most iterations that are drawn. More columns would be too narrow to follow."""
BAR = 14
"""Width of a column."""
TOP, FLOOR = 22, HEIGHT - 30
"""Coordinates between which columns stand."""


def state_flow(changes: Sequence[StateChange]) -> Markup:
    """Draw a column for each iteration, divided by state, with ribbons to the next column.

    A problem whose run has ended keeps its last state, drawn pale, so that all columns have the same height.
    """
    counts: dict[tuple[int, str], int] = defaultdict(int)
    ribbons: dict[tuple[int, str, str], int] = defaultdict(int)
    last = min(max((change.index for change in changes if change.after != ENDED), default=0), LARGEST - 1)
    for change in changes:
        if change.index <= last:
            after = _at_rest(change.before) if change.after == ENDED else change.after
            counts[change.index, after] += change.problems
            if change.index:
                ribbons[change.index, change.before, after] += change.problems
    _keep_ended(counts, ribbons, last)
    total = sum(count for (index, _), count in counts.items() if index == 0)
    if not total:
        return chart(
            "States of problems in each iteration", text(WIDTH / 2, HEIGHT / 2, "no attempts", anchor="middle")
        )
    left, right = 34.0, WIDTH - 128.0
    across = [left + (right - left) * index / last if last else left for index in range(last + 1)]
    height = (FLOOR - TOP) / total
    tops = _tops(counts, last, height)
    parts = _ribbons(ribbons, tops, across, height)
    for (index, state), top in sorted(tops.items()):
        count = counts[index, state]
        parts.append(
            tag(
                "rect",
                tag("title", f"iteration {index}: {count} {state.replace('_', ' ')}"),
                x=across[index] - BAR / 2,
                y=top,
                width=BAR,
                height=max(count * height - 0.6, 0.6),
                class_=_colour(state),
            )
        )
    for index, x in enumerate(across):
        parts.append(text(x, FLOOR + 15, str(index), anchor="middle", class_="muted"))
    parts.append(text(left - BAR / 2, TOP - 9, f"{total} problem{'s' * (total != 1)}", class_="muted"))
    parts.append(text(across[-1] + BAR, FLOOR + 15, "iteration", class_="muted"))
    parts += _labels(counts, tops, last, across[-1], height)
    return chart("States of problems in each iteration", *parts)


def _at_rest(state: str) -> str:
    """Return the state of a problem after its run has ended."""
    return f"{REST}{state}" if state != START else NO_ATTEMPT


def _is_at_rest(state: str) -> bool:
    return state.startswith(REST) or state == NO_ATTEMPT


def _colour(state: str, *, pale: bool = True) -> str:
    """Return the classes of a state; `pale` makes those pale in which runs have ended."""
    return f"f-{colour_class(state.removeprefix(REST))}{' soft' if pale and _is_at_rest(state) else ''}"


def _keep_ended(counts: dict[tuple[int, str], int], ribbons: dict[tuple[int, str, str], int], last: int) -> None:
    """Count a problem that has ended in every later column as well."""
    for index in range(1, last + 1):
        for state in [state for at, state in counts if at == index - 1 and _is_at_rest(state)]:
            counts[index, state] += counts[index - 1, state]
            ribbons[index, state, state] += counts[index - 1, state]


def _states(counts: dict[tuple[int, str], int], index: int) -> list[str]:
    present = {state for (at, state), count in counts.items() if at == index and count}
    return [*(state for state in ORDER if state in present), *sorted(present.difference(ORDER))]


def _tops(counts: dict[tuple[int, str], int], last: int, height: float) -> dict[tuple[int, str], float]:
    tops = {}
    for index in range(last + 1):
        at = float(TOP)
        for state in _states(counts, index):
            tops[index, state] = at
            at += counts[index, state] * height
    return tops


def _ribbons(
    ribbons: dict[tuple[int, str, str], int], tops: dict[tuple[int, str], float], across: Sequence[float], height: float
) -> list[Markup]:
    drawn = list[Markup]()
    leaving, arriving = defaultdict[tuple[int, str], float](float), defaultdict[tuple[int, str], float](float)
    rank = {state: number for number, state in enumerate(ORDER)}
    for (index, before, after), count in sorted(
        ribbons.items(), key=lambda each: (each[0][0], rank.get(each[0][1], 99), rank.get(each[0][2], 99))
    ):
        if not count:
            continue
        start = tops[index - 1, before] + leaving[index - 1, before]
        end = tops[index, after] + arriving[index, after]
        leaving[index - 1, before] += count * height
        arriving[index, after] += count * height
        x1, x2 = across[index - 1] + BAR / 2, across[index] - BAR / 2
        middle, thick = (x1 + x2) / 2, max(count * height - 0.6, 0.6)
        outline = (
            f"M{x1:.1f} {start:.1f}C{middle:.1f} {start:.1f} {middle:.1f} {end:.1f} {x2:.1f} {end:.1f}v{thick:.1f}"
            f"C{middle:.1f} {end + thick:.1f} {middle:.1f} {start + thick:.1f} {x1:.1f} {start + thick:.1f}Z"
        )
        said = f"{count}: {before} → {after}".replace("_", " ")
        drawn.append(
            tag(
                "path",
                tag("title", said),
                d=outline,
                class_=f"{'rest' if _is_at_rest(before) else 'ribbon'} {_colour(after, pale=False)}",
            )
        )
    return drawn


def _labels(
    counts: dict[tuple[int, str], int], tops: dict[tuple[int, str], float], last: int, x: float, height: float
) -> list[Markup]:
    """Return a label for each state of the last column, beside the column and without overlaps."""
    states = _states(counts, last)
    middles = [tops[last, state] + counts[last, state] * height / 2 + 4 for state in states]
    drawn = []
    for state, y in zip(states, spread(middles, 14, TOP + 6, FLOOR), strict=True):
        said = f"{counts[last, state]} {state.replace('_', ' ')}"
        colour = colour_class(state.removeprefix(REST))
        drawn.append(text(x + BAR, y, said, class_=f"f-{colour}" if _is_at_rest(state) else f"f-{colour} strong"))
    return drawn
