"""Signs the files that this user makes on this machine, to distinguish them from files that others made.

A random key that only this user may read signs every run, suite, attempt and receipt that kforge writes (HMAC-SHA256
over the file's bytes). The signature proves nothing to other people. It only detects files made by others, whose code
and settings are not used without the user's consent (`kforge.store.trust`).
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kforge import durable
from kforge.errors import InputError, RunError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "signing.key"
SIGNATURE = "signature"
"""Name of the file with the signature beside a signed file, and of the field in a signed document."""
_WRITTEN = re.compile(rb"[0-9a-f]{64}")


class Key:
    """The user's signing key, in a folder that only this user can write. It is made when the first file is signed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def sign(self, purpose: str, content: bytes) -> str | None:
        """Return the signature of this content for this purpose, or None if no key can be kept.

        Raises InputError if others can read the key.
        """
        secret = self._read() or self._make()
        return _signature(secret, purpose, content) if secret is not None else None

    def has_signed(self, purpose: str, content: bytes, signature: str | None) -> bool:
        """Return whether this key made the signature for this content and purpose. Raises InputError if others can read
        the key."""
        if not signature or not signature.isascii() or (secret := self._read()) is None:
            return False
        return hmac.compare_digest(_signature(secret, purpose, content), signature)

    def write_signature(self, path: Path, purpose: str, content: bytes, *, within: Path) -> None:
        """Write the signature of this content to a file; without a key, write nothing.

        Raises RunError if the file cannot be written, and InputError if others may read the key.
        """
        if (signature := self.sign(purpose, content)) is not None:
            durable.write(path, signature + "\n", within=within)

    def has_signed_by(self, path: Path, purpose: str, content: bytes) -> bool:
        """Return whether the file at `path` holds this key's signature for this content and purpose. False if there is
        no such file."""
        with suppress(OSError, RunError, UnicodeDecodeError):
            return self.has_signed(purpose, content, durable.read(path).decode().strip())
        return False

    def _read(self) -> bytes | None:
        """Return the key, or None if there is no key that this process may read. Raises InputError if others may read
        it."""
        try:
            text = durable.read(self.path)
            about = self.path.lstat()
        except (OSError, RunError):
            return None
        if (mode := stat.S_IMODE(about.st_mode)) & 0o077 or about.st_uid != os.geteuid():
            said = f"open to others (mode {mode:03o})" if mode & 0o077 else "a file of another user"
            raise InputError(f"the key {self.path}, which signs your runs, is {said}; remove it to get a new one")
        return text.strip() if _WRITTEN.fullmatch(text.strip()) else None

    def _make(self) -> bytes | None:
        """Make the key and return it, or None if it cannot be written. If two processes make one at once, both use the
        first."""
        temporary = self.path.with_name(f".{FILE}.{secrets.token_hex(8)}.tmp")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            durable.write(temporary, secrets.token_hex(32) + "\n", mode=0o600)
            with suppress(FileExistsError):
                os.link(temporary, self.path)
        except (OSError, RunError):
            return None
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        return self._read()


def _signature(secret: bytes, purpose: str, content: bytes) -> str:
    return hmac.digest(secret, purpose.encode() + b"\0" + content, "sha256").hex()


def canonical(document: dict[str, Any]) -> bytes:
    """Return a JSON document without its signature, in the canonical form that is signed."""
    unsigned = {name: value for name, value in document.items() if name != SIGNATURE}
    return json.dumps(unsigned, sort_keys=True, separators=(",", ":")).encode()
