"""Caches measurements in this process and on disk."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeVar

from kforge import durable
from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

R = TypeVar("R", bound=Record)

PEAKS_EDITION = "3"
"""Version of the set of measured rates. Change it with that set, so that cached peaks are measured again."""


def peaks_on(platform: str, device: str, torch_version: str) -> tuple[str, ...]:
    """Return what identifies a device's peaks in the cache. The platform counts, because each measures in its own
    way."""
    return platform, device, torch_version, PEAKS_EDITION


class Measurements:
    """A cache of records, by their type and by what they were measured on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._of_this_process: dict[Path, Record] = {}
        """Records that this process has measured, by their path on disk. They are preferred to those on disk, which
        another process may have replaced since, so that one run uses one measurement."""

    def get(self, kind: type[R], *measured_on: str, believe: Callable[[R], bool] = lambda _: True) -> R | None:
        """Return a cached record; None if none is cached that `believe` accepts.

        `measured_on` names what was measured, such as problem and device.
        """
        path = self._path(kind, measured_on)
        known = self._of_this_process.get(path)
        if isinstance(known, kind) and believe(known):
            return known
        try:
            kept = kind.from_json(path.read_bytes())
        except (OSError, ValueError):  # absent, or written by another version of kforge: it is measured again
            return None
        return kept if believe(kept) else None

    def put(self, record: Record, *measured_on: str) -> None:
        """Cache a record. Raises RunError if the cache on disk cannot be written."""
        path = self._path(type(record), measured_on)
        self._of_this_process[path] = record
        durable.make_folder(path.parent)
        durable.write(path, record.to_json(), shared=True)

    def _path(self, kind: type[Record], measured_on: tuple[str, ...]) -> Path:
        key = hashlib.sha256("\0".join(measured_on).encode()).hexdigest()[:24]
        return self._folder / kind.__name__.lower() / f"{key}.json"
