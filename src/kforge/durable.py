"""Writes files that are either whole or absent, even after a crash, and never through a link.

A temporary file in the same folder is written and synced, then renamed over the final name, then the folder is synced.
Its name cannot be guessed and it must not exist yet, so that no other process can put a symbolic link there. Files that
a killed writer left are removed by the next write. A file or folder of a run that is a symbolic link is refused: a
folder that others made must not lead to files outside of it.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kforge import reading
from kforge.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST = 256 * 2**20
"""Most bytes of a file that is read whole. Files that kforge writes are far smaller."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write(
    path: Path,
    text: str | bytes,
    *,
    shared: bool = False,
    within: Path | None = None,
    mode: int = 0o666,
    synced: bool = True,
) -> None:
    """Write a text, or bytes, under its final name. Raises RunError when it cannot be written; then the old file stays.

    `shared`: other processes may write the same file at the same time. `within`: a folder that others may have made;
    neither it nor any path from it down to the file may be a symbolic link. `synced`: wait until the file is on disk;
    a file that is not synced may be lost or empty after a power failure.
    """
    content = text.encode() if isinstance(text, str) else text
    _replace(path, lambda file: file.write(content), within, mode, shared=shared, synced=synced)


def copy(source: Path, path: Path, *, within: Path | None = None) -> None:
    """Write a copy of a file under its final name. Raises RunError when it cannot be read or written."""

    def fill(file: BinaryIO) -> None:
        with source.open("rb") as original:
            shutil.copyfileobj(original, file)

    _replace(path, fill, within)


def read(path: Path, *, most: int = LARGEST) -> bytes:
    """Return the content of a regular file.

    Raises RunError for a link, another kind of file or a file that is too large, and OSError for other failures.
    """
    try:
        return reading.content(path, most=most, follow=False)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise is_link(path) from None
        if error.errno in (errno.EINVAL, errno.EFBIG, errno.EISDIR):
            raise RunError(f"cannot read {path}: {reading.reason(error)}") from None
        raise


def make_folder(path: Path, *, within: Path | None = None, synced: bool = True) -> None:
    """Make a folder that survives a crash if it is `synced`; an existing one is fine. Raises RunError if it cannot be
    made, or lies behind a link."""
    refuse_links(path, within)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if synced:
            _sync_folder(path.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error
    refuse_links(path, within)


def refuse_links(path: Path, within: Path | None = None) -> None:
    """Raise RunError when the path, or any folder on the way to it from `within` on, is a symbolic link."""
    ours = [path]
    if within is not None:
        ours += [parent for parent in path.parents if parent == within or within in parent.parents]
    for place in ours:
        if place.is_symlink():
            raise is_link(place)


def is_link(path: Path) -> RunError:
    """Return the error for a symbolic link in the place of a file or folder of kforge."""
    return RunError(
        f"{path} is a symbolic link, which kforge does not follow here; remove it, or name what it leads to"
    )


def _replace(
    path: Path,
    fill: Callable[[BinaryIO], object],
    within: Path | None,
    mode: int = 0o666,
    *,
    shared: bool = False,
    synced: bool = True,
) -> None:
    refuse_links(path, within)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        if not shared:
            _remove_leftovers(path)
        try:
            with os.fdopen(os.open(temporary, _NEW, mode), "wb") as file:
                fill(file)
                file.flush()
                if synced:
                    os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if synced:
            _sync_folder(path.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files that a killed writer of this file left; links are removed, and not followed."""
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name.startswith(f".{path.name}.") and entry.name.endswith(".tmp"):
                Path(entry.path).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_write(path: Path, error: OSError) -> RunError:
    return RunError(f"cannot write {path}: {error.strerror or error}")
