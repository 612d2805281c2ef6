"""Reads files that profilers wrote on another machine. A format is recognized by its header; other files are
refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.errors import ProfileError
from kforge.profiling import counters, nsight_compute, nsight_systems, xctrace
from kforge.profiling.nsight_systems import Row
from kforge.records import HotSpot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.records import KernelCounters

MAX_BYTES = 64 << 20
"""Most bytes of a profiler's file that are read."""
ACCEPTED = "ncu --csv (--page raw or details), nsys stats --format csv and xctrace export are read"
"""The last part of error messages, which names the accepted files."""
_BINARY = (
    (b"NVR\x00", "an Nsight Compute report"),
    (b"SQLite format 3", "an SQLite database"),
    (b"PK\x03\x04", "a zip"),
)
"""First bytes of files that users may pass by mistake, and what they are."""


@dataclass(frozen=True)
class Export:
    """The contents of one profiler file, or of several together."""

    tools: tuple[str, ...]
    kernels: tuple[KernelCounters, ...] = ()
    device_rows: tuple[Row, ...] = ()
    """Kernels and copies with their seconds."""
    sizes: tuple[Row, ...] = ()
    """Copies with their bytes."""
    driver_calls: tuple[Row, ...] = ()
    """Functions of the driver that the host called, with their seconds."""
    device: str = ""
    """Name of the profiled device; empty if no file contains it."""

    @property
    def tool(self) -> str:
        return " and ".join(self.tools)

    def hot_spots(self, calls: int = 1) -> tuple[HotSpot, ...]:
        """Return where the device's time went in one call of the module. `calls` is the number of recorded calls."""
        rows = self.device_rows or tuple(Row(one.name, one.launches, one.seconds) for one in self.kernels)
        total = sum(row.amount for row in rows)
        if not total:
            return ()
        return tuple(
            HotSpot(
                name=row.name, calls=_a_call(row.count, calls), seconds=row.amount / calls, share=row.amount / total
            )
            for row in sorted(rows, key=lambda row: -row.amount)
        )


def _a_call(count: int, calls: int) -> int:
    """Return how often a kernel ran in one call of the module, at least 1, from its count in `calls` calls."""
    return max(1, round(count / calls))


def read(text: str) -> Export:
    """Return the contents of one profiler file. Raises ProfileError for an unknown file, or one that would be
    misread."""
    if xctrace.is_export(text):
        return Export((xctrace.TOOL,), device_rows=xctrace.read(text))
    lines = text.splitlines()
    if nsight_compute.header_at(lines) is not None:
        kernels, device = nsight_compute.read(lines)
        return Export((nsight_compute.TOOL,), kernels, device=device)
    if any(map(nsight_systems.is_header, lines)):
        found = nsight_systems.read(lines)
        rows = (*found.kernels, *found.copies)
        return Export(
            (nsight_systems.TOOL,), device_rows=rows, sizes=tuple(found.sizes), driver_calls=tuple(found.calls)
        )
    raise ProfileError(f"it is not an export of a profiler that kforge knows: {ACCEPTED}")


def decoded(content: bytes) -> str:
    """Return the text of a file. Raises ProfileError if it is binary, too large or not text; the message says what
    to do if the cause is known."""
    for start, what in _BINARY:
        if content.startswith(start):
            raise ProfileError(f"it is {what}, not an export: {ACCEPTED}")
    if len(content) > MAX_BYTES:
        raise ProfileError(f"it is larger than {MAX_BYTES >> 20} MiB")
    # Windows' tools and its shell write UTF-16
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        raise ProfileError(f"it is not text: {ACCEPTED}") from None
    if "\0" in text:
        raise ProfileError(f"it is not text: {ACCEPTED}")
    return text


def together(exports: Sequence[Export]) -> Export:
    """Return the contents of several files about the same program. Raises ProfileError if they are from different
    devices."""
    devices = {export.device for export in exports if export.device}
    if len(devices) > 1:
        raise ProfileError(f"the exports are of different devices: {' and '.join(sorted(devices))}")
    return Export(
        tools=tuple(dict.fromkeys(tool for export in exports for tool in export.tools)),
        kernels=counters.joined(export.kernels for export in exports),
        device_rows=tuple(row for export in exports for row in export.device_rows),
        sizes=tuple(row for export in exports for row in export.sizes),
        driver_calls=tuple(row for export in exports for row in export.driver_calls),
        device=next(iter(devices), ""),
    )
