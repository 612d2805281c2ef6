"""Records the kernels of devices that torch's profiler does not see, as the devices' own events time them.

    with launches.recorded() as found:
        call()

A language whose kernels run on such a device calls `note` for every launch while `recording()` is true.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


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
