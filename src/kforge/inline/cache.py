"""Caches builds on disk by content. Safe against races, killed processes and damage, without a lock.

An entry is one file: the built file, then the SHA-256 of its bytes (loaders ignore what follows the last section). It
is written elsewhere and renamed into place, so a reader sees a whole entry or none; two builders of one key replace
each other's equal work. A cut or altered entry no longer matches its digest and is built again, because mapping a
truncated library would kill the process with SIGBUS.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.inline.errors import ToolchainError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_DIGEST_BYTES = hashlib.sha256().digest_size


def key(parts: Iterable[str]) -> str:
    """Return a name that depends on everything that decides the result of a build."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()


def fetch(folder: Path, name: str, build: Callable[[Path], Path]) -> Path:
    """Return the entry `name`; build it when it is absent or damaged.

    `build` gets a private folder and returns the path of the file it made there. Raises ToolchainError when the cache
    cannot be written, and every error that `build` raises.
    """
    entry = folder / name
    if _is_whole(entry):
        return entry
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Beside the entry, since a rename is atomic only within one file system.
        private = tempfile.TemporaryDirectory(prefix="build-", dir=folder, ignore_cleanup_errors=True)
    except OSError as error:
        raise ToolchainError(
            f"cannot write the build cache {folder}: {error.strerror}; "
            "choose another with kforge.inline.configure(cache=...)"
        ) from error
    with private as place:
        made = build(Path(place))
        try:
            body = made.read_bytes()
            made.write_bytes(body + hashlib.sha256(body).digest())
            made.replace(entry)
        except OSError as error:
            raise ToolchainError(f"cannot write {entry}: {error.strerror}") from error
    return entry


def content(entry: Path) -> bytes:
    """Return the built file's bytes, without the digest at the end. Raises OSError."""
    return entry.read_bytes()[:-_DIGEST_BYTES]


def _is_whole(entry: Path) -> bool:
    try:
        whole = entry.read_bytes()
    except OSError:
        return False
    body, digest = whole[:-_DIGEST_BYTES], whole[-_DIGEST_BYTES:]
    return hashlib.sha256(body).digest() == digest
