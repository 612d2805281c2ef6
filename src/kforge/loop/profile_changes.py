"""Compares two profiles: what takes more time in a rewrite than in the program that it was made from.

A profile has noise, so only clear changes are named: an operator or kernel by a share of the whole call, a share of
samples by points, a counter by its ratio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.profiling.rows import IDLE
from kforge.profiling.wording import cut, percent, time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kforge.records import AuthoredCode, HotSpot, Profile

LEAST_SHARE = 0.05
"""Share of the earlier call's time by which a row must have changed."""
LEAST_POINTS = 0.1
"""Share of all samples by which a kind of instructions, or another library, must have changed."""
LEAST_RATIO = 1.15
"""Factor by which a counter must have changed."""
MOST_LINES = 8


def changes(before: Profile, after: Profile) -> tuple[str, ...]:
    """Return the clearest changes between two profiles, in a line each; empty if they do not explain a difference."""
    found = [*_rows(before, after)]
    if before.authored is not None and after.authored is not None:
        found += _inside(before.authored, after.authored)
    found += _of_kernels(before, after)
    return tuple(found[:MOST_LINES])


def _rows(before: Profile, after: Profile) -> Iterator[str]:
    """Yield operators and kernels that take longer or shorter, the largest change first."""
    old, new = _by_name(before.hot_spots), _by_name(after.hot_spots)
    changed = {name: new.get(name, (0.0, 0))[0] - old.get(name, (0.0, 0))[0] for name in {**old, **new}}
    for name in sorted(changed, key=lambda name: (-abs(changed[name]), name)):
        if abs(changed[name]) >= LEAST_SHARE * before.seconds:
            yield f"{cut(name)}: {_times(old.get(name))} before, {_times(new.get(name))} now"


def _by_name(rows: Sequence[HotSpot]) -> dict[str, tuple[float, int]]:
    """Return seconds and calls in one call of the module by the name of an operator or kernel."""
    found: dict[str, tuple[float, int]] = {}
    for row in rows:
        if row.name != IDLE:
            seconds, calls = found.get(row.name, (0.0, 0))
            found[row.name] = seconds + row.seconds, calls + row.calls
    return found


def _times(row: tuple[float, int] | None) -> str:
    if row is None:
        return "not there"
    seconds, calls = row
    return f"{time(seconds)} in {calls} calls" if calls > 1 else time(seconds)


def _inside(before: AuthoredCode, after: AuthoredCode) -> Iterator[str]:
    """Yield what changed inside authored kernels."""
    for loop in after.loops:
        earlier = next((each for each in before.loops if each.text == loop.text), None)
        if loop.share < LEAST_POINTS or not loop.report or (earlier is not None and earlier.report == loop.report):
            continue
        said = f"before: {earlier.report}" if earlier is not None and earlier.report else "it was not there before"
        yield f"loop in line {loop.line}, {percent(loop.share)} of the samples: {cut(loop.report)} ({cut(said)})"
    yield from _shares("instructions with", before.registers, after.registers)
    yield from _shares("time in", before.elsewhere, after.elsewhere)
    yield from _counters("", before.counters, after.counters)


def _shares(what: str, before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[str]:
    for name in {**before, **after}:
        old, new = before.get(name, 0.0), after.get(name, 0.0)
        if abs(new - old) >= LEAST_POINTS:
            yield f"{what} {name}: {percent(old)} of the samples before, {percent(new)} now"


def _counters(of: str, before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[str]:
    for name, old in before.items():
        new = after.get(name)
        if new is not None and max(old, new) > LEAST_RATIO * min(old, new):
            yield f"{of}{name}: {old:.4g} before, {new:.4g} now"


def _of_kernels(before: Profile, after: Profile) -> Iterator[str]:
    """Yield hardware counters that changed, of the kernel with the most time in each program."""
    if before.kernels and after.kernels:
        old, new = (max(each.kernels, key=lambda kernel: kernel.seconds) for each in (before, after))
        of = f"{cut(new.name, 40)}, " if old.name == new.name else f"{cut(old.name, 40)} → {cut(new.name, 40)}, "
        yield from _counters(of, old.figures, new.figures)
        yield from _shares(f"{of}warps wait for", old.stalls, new.stalls)
