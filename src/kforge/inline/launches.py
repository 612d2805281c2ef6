"""Records kernel launches on devices that torch's profiler does not see. The devices' own events give the times.

    with launches.recorded() as found:
        call()

A language whose kernels run on such a device calls `note` for every launch while `recording()` is true. `rates`
measures the peak rates of such a device in the same way.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.inline.library import Library

STEPS = 256
"""Number of steps of the loop in the kernel `multiplied`, see `rates`. The sources of that kernel contain the word
STEPS, which `with_steps` replaces."""
_COPIED_BYTES = 32 << 20
"""Bytes that the kernel `copied` copies: more than most caches hold, and well below the smallest buffer limit of a
device (128 MB)."""
_THREADS = 1 << 14
_OPERATIONS = STEPS * 4 * 4 * 2
"""Floating-point operations of one thread of `multiplied`: a product and a sum, for four vectors of four, in each
step."""
_ROUNDS = 3


class Launch(NamedTuple):
    """One launch, with its start and end in nanoseconds of the device's clock."""

    name: str
    start: int
    end: int


_recorders: list[list[Launch]] = []


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Collect all launches inside the `with` block in the list that it yields. Launches are slower meanwhile, because
    each is timed."""
    found: list[Launch] = []
    _recorders.append(found)
    try:
        yield found
    finally:
        _recorders[:] = [one for one in _recorders if one is not found]


def recording() -> bool:
    """Return whether launches are being recorded now."""
    return bool(_recorders)


def note(name: str, start: int, end: int) -> None:
    """Add one launch to every list that is being recorded."""
    for found in _recorders:
        found.append(Launch(name, start, end))


def with_steps(source: str) -> str:
    """Return the source of the kernels for `rates`, with the number of steps in place of the word STEPS."""
    return source.replace("STEPS", str(STEPS))


def rates(library: Library) -> dict[str, float]:
    """Return `bytes_per_second` and `flops_per_second` of a device. Empty if the device does not time its launches.
    (torch)

    The library must have two kernels, with one thread for each vector of four floats: `copied(x, out)`, and
    `multiplied(x, out)`, which multiplies and adds four vectors in each of `STEPS` steps.
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
