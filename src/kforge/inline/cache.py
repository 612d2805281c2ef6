"""A cache of builds on disk, by content. It is safe against races, killed processes and damaged files, without a lock.

An entry is one file: the built file, followed by the SHA-256 digest of its bytes. Loaders ignore the bytes after the
last section. The file is written elsewhere and renamed into place, so that a reader sees a complete entry or none. If
two processes build the same key, the later entry replaces an equal one. A truncated or altered entry no longer matches
its digest and is built again, because mapping a truncated library would kill the process with SIGBUS.
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
    """Return the name of a cache entry: a hash of all parts that determine the result of a build."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()


def fetch(folder: Path, name: str, build: Callable[[Path], Path]) -> Path:
    """Return the path of the entry `name`. It is built if it is missing or damaged.

    `build` gets a private folder and returns the path of the file that it made there. Raises ToolchainError if the
    cache cannot be written, and every error that `build` raises.
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
    """Return the bytes of the built file, without the digest at the end. Raises OSError if it cannot be read."""
    return entry.read_bytes()[:-_DIGEST_BYTES]


def _is_whole(entry: Path) -> bool:
    try:
        whole = entry.read_bytes()
    except OSError:
        return False
    body, digest = whole[:-_DIGEST_BYTES], whole[-_DIGEST_BYTES:]
    return hashlib.sha256(body).digest() == digest
