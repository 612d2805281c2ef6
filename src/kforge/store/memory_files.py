"""Stores small JSON files by key, in which kforge remembers across runs what worked.

Several runs may write at the same time: each key has a file of its own, which is replaced as a whole. Losing a file
costs a few iterations of a run, so errors are ignored.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kforge import durable, reading
from kforge.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_FILES = 1000
"""Most files that are read. Reading more would noticeably delay the start of a run."""


class MemoryFiles:
    """The files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, key: object, document: dict[str, Any]) -> None:
        """Write the document of a key, and replace an earlier one. Errors are ignored."""
        file = self._file(key)
        with suppress(RunError):  # the run itself succeeded, and its folder is complete without this file
            durable.make_folder(file.parent)
            durable.write(file, json.dumps(document), shared=True)

    def get(self, key: object) -> dict[str, Any]:
        """Return the document of a key. It is empty if none was written, or if the file cannot be read."""
        return _read(self._file(key))

    def all(self) -> Iterator[dict[str, Any]]:
        """Yield the documents of all keys that can be read."""
        for file in sorted(self.folder.glob("*.json"))[:MOST_FILES]:
            if document := _read(file):
                yield document

    def _file(self, key: object) -> Path:
        return self.folder / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()}.json"


def _read(file: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        document = json.loads(reading.text(file))
        if isinstance(document, dict):
            return document
    return {}
