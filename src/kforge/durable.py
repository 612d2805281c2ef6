"""Files that are either whole or absent, whatever happens to this process or this machine.

A temporary file in the same folder is written and synced, then renamed over the final name, then the folder is
synced. The temporary name is fixed where there is one writer, so that the next try overwrites what a kill left; files
that several processes may write at once (`shared`) get one that nobody else has.
"""

from __future__ import annotations

import os
import secrets
import shutil
from typing import TYPE_CHECKING, BinaryIO

from kforge.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def write(path: Path, text: str, *, shared: bool = False) -> None:
    """Put a text under its final name. Raises RunError when it cannot be written; then the old file stands."""
    unique = f".{os.getpid()}-{secrets.token_hex(4)}" if shared else ""
    _replace(path, lambda file: file.write(text.encode()), unique)


def copy(source: Path, path: Path) -> None:
    """Put a copy of a file under its final name. Raises RunError when it cannot be read or written."""

    def fill(file: BinaryIO) -> None:
        with source.open("rb") as original:
            shutil.copyfileobj(original, file)

    _replace(path, fill)


def make_folder(path: Path) -> None:
    """Make a folder that outlives a crash; one that is there already is fine. Raises RunError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _replace(path: Path, fill: Callable[[BinaryIO], object], unique: str = "") -> None:
    temporary = path.with_name(f".{path.name}{unique}.tmp")
    try:
        try:
            with temporary.open("wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_write(path: Path, error: OSError) -> RunError:
    return RunError(f"cannot write {path}: {error.strerror or error}")
