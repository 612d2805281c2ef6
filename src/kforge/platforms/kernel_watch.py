"""Which kernels a device runs, by torch's profiler inside the process that launches them. (torch)

A claim: the program runs in the same process. Whoever asks compares it with a clock of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile
from torch.profiler import supported_activities

from kforge.platforms.kernels import Run, Watched, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NO_WORK = ("annotation", "sync", "event")
"""In the kinds of what is told about a device besides kernels and copies."""


def watch(call: Callable[[], object], device: str) -> Watched:
    """Run something that waits for its device, and see what ran there. Raises whatever `call` raises, and no more."""
    profiler = _started(torch.device(device).type)
    try:
        call()
    finally:
        events = _stopped(profiler)
    return summary(runs(events))


def runs(events: Iterable[Any]) -> list[Run]:
    """The kernels and copies among the events of torch's profiler."""
    found = []
    for event in events:
        kind = getattr(event, "activity_type", str)()  # not every torch has it
        if event.device_type() != DeviceType.CPU and not any(word in kind for word in _NO_WORK):
            found.append(Run(event.name(), event.start_ns(), event.start_ns() + max(0, event.duration_ns())))
    return found


def _started(device_type: str) -> profile | None:
    """For the device only, which costs the host least; None where it cannot be watched."""
    visible = {activity.name.lower() for activity in supported_activities()}  # type: ignore[no-untyped-call]
    if device_type not in visible - {"cpu"}:  # which runs no kernels
        return None
    try:
        # torch.profiler.profile would import torch's compiler first; without kineto there are no kernels
        profiler = profile(use_device=device_type, use_kineto=True, use_cpu=False)
        profiler.__enter__()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError):  # somebody else profiles, the program maybe
        return None
    return profiler


def _stopped(profiler: profile | None) -> Iterable[Any]:
    """What it saw, as it is: to make torch's own rows of it takes many times as long."""
    if profiler is None:
        return ()
    try:
        profiler.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    except RuntimeError:  # the program has stopped it, or the device has failed, which the call has told
        return ()
    results = profiler.kineto_results
    return () if results is None else results.events()
