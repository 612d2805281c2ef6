"""Lists the kernels that a device runs, by torch's profiler inside the process that launches them. (torch)

The list alone cannot be trusted, because the program runs in the same process. The caller compares it with another
clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile
from torch.profiler import supported_activities

from kforge.platforms.kernels import Run, WatchedKernels, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NO_WORK = ("annotation", "sync", "event")
"""Parts of the type names of device events that are neither kernels nor copies."""


def watch(call: Callable[[], object], device: str) -> WatchedKernels:
    """Run a call that waits for its device, and return the kernels that ran on the device. Raises only what `call`
    raises."""
    profiler = _started(torch.device(device).type)
    try:
        call()
    finally:
        events = _stopped(profiler)
    return summary(runs(events))


def runs(events: Iterable[Any]) -> list[Run]:
    """Return the kernels and copies among the events of torch's profiler."""
    found = []
    for event in events:
        kind = getattr(event, "activity_type", str)()  # not every torch has it
        if event.device_type() != DeviceType.CPU and not any(word in kind for word in _NO_WORK):
            found.append(Run(event.name(), event.start_ns(), event.start_ns() + max(0, event.duration_ns())))
    return found


def _started(device_type: str) -> profile | None:
    """Start the profiler for the device only, which costs the host least, and return it. None if the profiler cannot
    watch this device."""
    visible = {activity.name.lower() for activity in supported_activities()}  # type: ignore[no-untyped-call]
    if device_type not in visible - {"cpu"}:  # the host runs no kernels
        return None
    try:
        # torch.profiler.profile would import torch's compiler first; without kineto there are no kernels
        profiler = profile(use_device=device_type, use_kineto=True, use_cpu=False)
        profiler.__enter__()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError):  # another profiler is active, perhaps the program's
        return None
    return profiler


def _stopped(profiler: profile | None) -> Iterable[Any]:
    """Stop the profiler and return its raw events. Converting them to torch's own rows would take many times as
    long."""
    if profiler is None:
        return ()
    try:
        profiler.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    except RuntimeError:  # the program has stopped the profiler, or the device has failed, which the call has reported
        return ()
    results = profiler.kineto_results
    return () if results is None else results.events()
