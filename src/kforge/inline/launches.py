"""Records the kernels of devices that torch's profiler does not see, as the devices' own events time them.

    with launches.recorded() as found:
        call()

A language whose kernels run on such a device calls `note` for every launch while `recording()` is true. What such a
device reaches is measured in the same way (`rates`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.inline.library import Library

STEPS = 256
"""Steps of the loop in `multiplied`, see `rates`."""
_COPIED_BYTES = 32 << 20
"""Beyond most caches, and well under the least that a device can bind (128 MB)."""
_THREADS = 1 << 14
_OPERATIONS = STEPS * 4 * 4 * 2
"""Floating-point operations of a thread of `multiplied`: four vectors of four, a product and a sum each."""
_ROUNDS = 3


class Launch(NamedTuple):
    """One launch, with its times in nanoseconds of the device's clock."""

    name: str
    start: int
    end: int


_recorders: list[list[Launch]] = []


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Collect the launches inside in a list. They run slower meanwhile, because each is timed."""
    found: list[Launch] = []
    _recorders.append(found)
    try:
        yield found
    finally:
        _recorders[:] = [one for one in _recorders if one is not found]


def recording() -> bool:
    """Whether anything collects launches now."""
    return bool(_recorders)


def note(name: str, start: int, end: int) -> None:
    """Tell everything that collects launches about one."""
    for found in _recorders:
        found.append(Launch(name, start, end))


def rates(library: Library) -> dict[str, float]:
    """Return `bytes_per_second` and `flops_per_second` of a device; neither where its launches are not timed. (torch)

    The library has two kernels, with a thread for each vector of four floats: `copied(x, out)`, and `multiplied(x,
    out)`, in which four vectors are each multiplied with and added to another one in `STEPS` steps.
    """
    import torch

    x = torch.ones(_COPIED_BYTES // 4)
    out = torch.empty_like(x)
    with recorded() as found:
        for _ in range(_ROUNDS):
            library.copied(x, out, threads=x.numel() // 4)
            library.multiplied(x[: 4 * _THREADS], out[: 4 * _THREADS], threads=_THREADS)
    best = {
        name: min((one.end - one.start for one in found if one.name == name and one.end > one.start), default=0)
        for name in ("copied", "multiplied")
    }
    if not all(best.values()):
        return {}
    return {
        "bytes_per_second": 2 * _COPIED_BYTES / (best["copied"] * 1e-9),
        "flops_per_second": _THREADS * _OPERATIONS / (best["multiplied"] * 1e-9),
    }
