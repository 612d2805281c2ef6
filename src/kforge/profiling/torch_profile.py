"""Finds hot spots by torch's profiler, inside the worker that runs the program. (torch)"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile, record_function
from torch.profiler import supported_activities

from kforge.inline import launches
from kforge.profiling.rows import IDLE, LAUNCHING, OTHER, OUTSIDE
from kforge.records import HotSpot, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.inline.launches import Launch

TOP = 12
"""Most rows of a profile; one more sums up the rest."""

SPANS = 128
"""Most spans (kernels or operators) of a timeline."""

ROUNDS = 3
"""Number of profiled rounds, of which the fastest counts. On a busy machine a short call may mostly wait for a core."""

_CALL = "kforge.call"
"""Name of the range that marks one call in the profile."""


class _Row(NamedTuple):
    name: str
    times: int
    microseconds: float


def record(call: Callable[[], object], calls: int) -> tuple[tuple[HotSpot, ...], tuple[Span, ...]]:
    """Profile `calls` calls after one warm-up. Returns the hot spots of one call, the largest first, and the timeline
    of the last call.

    The shares of the hot spots add up to 1. The times are those of the fastest of a few rounds. On an accelerator the
    rows are the kernels that it ran. On a host they are torch's operators; kernels that are launched through the C ABI
    are invisible to the profiler, so the time that it cannot attribute is a separate row. Kernels of a device that
    torch does not know are rows as well, by that device's own events. Raises ValueError if `calls` is not positive, and
    every error that `call` raises.
    """
    if calls < 1:
        raise ValueError(f"calls must be positive, got {calls}")
    # The warm-up is profiled too, and discarded: otherwise the program would be charged for the profiler's first
    # buffers.
    with _profiler():
        call()
        _synchronize()
    rounds = (_profiled(call, calls) for _ in range(ROUNDS))
    best = min(rounds, key=lambda found: found.seconds)
    rows = _rows(best.profiler.key_averages(), best.elsewhere)
    return _hot_spots(rows, calls), _timeline(best.profiler.function_events, best.elsewhere, calls)


class _Round(NamedTuple):
    """One profiled round."""

    seconds: float
    """Seconds of all calls of the round."""
    profiler: Any
    elsewhere: Sequence[Launch]
    """Launches on a device that torch's profiler does not see."""


def _profiled(call: Callable[[], object], calls: int) -> _Round:
    """Make the calls under the profiler."""
    with launches.recorded() as elsewhere, _profiler() as profiler:
        begun = time.perf_counter()
        for _ in range(calls):
            # The range ends after the device does, so that its time is the time of the whole call.
            with record_function(_CALL):
                call()
                _synchronize()
        seconds = time.perf_counter() - begun
    return _Round(seconds, profiler, elsewhere)


def _profiler() -> profile:
    """Return torch's profiler, built from its parts: importing `torch.profiler` itself imports torch's compiler (1 s).

    Kernels are reported only with kineto, which must be requested.
    """
    visible = {activity.name.lower() for activity in supported_activities()}  # type: ignore[no-untyped-call]
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return profile(use_device=device.type if device is not None and device.type in visible else None, use_kineto=True)


def _synchronize() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def _rows(averages: Sequence[Any], elsewhere: Sequence[Launch]) -> list[_Row]:
    """Return the rows of a profile: the kernels and idle time of a device, or the operators of the host."""
    whole = next(row for row in averages if row.key == _CALL and row.device_type == DeviceType.CPU)
    inside = [row for row in averages if row.key != _CALL and not row.key.startswith("ProfilerStep")]
    kernels = [
        _Row(row.key, row.count, row.self_device_time_total)
        for row in inside
        if row.device_type != DeviceType.CPU and row.self_device_time_total > 0
    ]
    if kernels:
        idle = whole.cpu_time_total - sum(row.microseconds for row in kernels)
        return [*kernels, _Row(IDLE, whole.count, max(idle, 0.0))]
    operators = [_Row(row.key, row.count, row.self_cpu_time_total) for row in inside]
    launched = _launched(elsewhere)
    # the host waits for these kernels outside of torch's operators, so their time must be subtracted
    outside = whole.self_cpu_time_total - sum(row.microseconds for row in launched)
    return [*launched, *operators, _Row(LAUNCHING if launched else OUTSIDE, whole.count, max(outside, 0.0))]


def _launched(elsewhere: Sequence[Launch]) -> list[_Row]:
    """Return a row for each kernel that torch's profiler does not see."""
    times = Counter(one.name for one in elsewhere)
    return [
        _Row(name, count, sum(one.end - one.start for one in elsewhere if one.name == name) / 1e3)
        for name, count in times.items()
    ]


def _timeline(events: Sequence[Any], elsewhere: Sequence[Launch], calls: int) -> tuple[Span, ...]:
    """Return the last call as spans in order of execution. If there are more than `SPANS`, the longest are kept."""
    if elsewhere:  # by the clock of that device, which is not the profiler's
        last = elsewhere[-max(1, len(elsewhere) // calls) :]
        found = [(one.name, one.start / 1e9, one.end / 1e9) for one in last]
    else:
        found = [(name, start / 1e6, end / 1e6) for name, start, end in _of_last_call(events)]
    begin = min((start for _, start, _ in found), default=0.0)
    longest = sorted(found, key=lambda span: span[1] - span[2])[:SPANS]
    return tuple(
        Span(name=name, start=start - begin, seconds=max(end - start, 0.0))
        for name, start, end in sorted(longest, key=lambda span: span[1])
    )


def _of_last_call(events: Sequence[Any]) -> list[tuple[str, float, float]]:
    """Return name, start and end, in microseconds, of each kernel of the last call.

    If no device was used, return each operator that is not part of another one, and the times between them.
    """
    whole = max(
        (each for each in events if each.name == _CALL and each.device_type == DeviceType.CPU),
        key=lambda each: each.time_range.start,
    )
    inside = [each for each in events if each.name != _CALL and each.time_range.start >= whole.time_range.start]
    kernels = [each for each in inside if each.device_type != DeviceType.CPU]
    if kernels:
        return [(each.name, each.time_range.start, each.time_range.end) for each in kernels]
    found, ended = [], whole.time_range.start
    for each in sorted(whole.cpu_children, key=lambda child: child.time_range.start):
        if each.time_range.start > ended:
            found.append((OUTSIDE, ended, each.time_range.start))
        found.append((_heaviest(each).name, each.time_range.start, each.time_range.end))
        ended = each.time_range.end
    return [*found, (OUTSIDE, ended, max(ended, whole.time_range.end))]


def _heaviest(event: Any) -> Any:
    """Return the operator with the longest time of its own: this one, or one that it calls."""
    return max((event, *map(_heaviest, event.cpu_children)), key=lambda each: each.self_cpu_time_total)


def _hot_spots(rows: list[_Row], calls: int) -> tuple[HotSpot, ...]:
    """Return the rows as hot spots per call, the largest first."""
    rows = sorted((row for row in rows if row.microseconds > 0), key=lambda row: -row.microseconds)
    head, tail = rows[:TOP], rows[TOP:]
    if tail:
        head.append(_Row(OTHER, sum(row.times for row in tail), sum(row.microseconds for row in tail)))
    total = sum(row.microseconds for row in head)
    return tuple(
        HotSpot(
            name=row.name,
            calls=max(1, round(row.times / calls)),
            seconds=row.microseconds * 1e-6 / calls,
            share=row.microseconds / total,
        )
        for row in head
    )
