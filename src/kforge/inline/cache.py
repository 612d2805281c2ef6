"""Builds on disk, by content: safe against races, kills and damage without a lock.

An entry is one file: what was built, then the SHA-256 of its bytes (loaders ignore what follows the last section).
It is written elsewhere and renamed into place, so a reader sees a whole entry or none; two builders of one key
replace each other's equal work. A cut or altered entry no longer matches its digest and is built anew, because
mapping a truncated library would kill the process with SIGBUS.
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
    """A name for everything that decides what a build yields."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()


def fetch(folder: Path, name: str, build: Callable[[Path], Path]) -> Path:
    """The entry `name`, built when it is not there whole.

    `build` gets a private folder and returns the path of the file it made there.
    Raises ToolchainError when the cache cannot be written, and whatever `build` raises.
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
    """What was built, without the digest behind it. Raises OSError."""
    return entry.read_bytes()[:-_DIGEST_BYTES]


def _is_whole(entry: Path) -> bool:
    try:
        whole = entry.read_bytes()
    except OSError:
        return False
    body, digest = whole[:-_DIGEST_BYTES], whole[-_DIGEST_BYTES:]
    return hashlib.sha256(body).digest() == digest
