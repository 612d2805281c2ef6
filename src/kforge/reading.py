"""Reads files that others may have made: bounded, never blocking, with one kind of error.

A name may lead to a pipe without a writer, to an endless device, or to a sparse file of 8 TiB. So a file is opened
without blocking, must be a regular file, and is read up to a limit. Every defect is an OSError whose `strerror` says
what is wrong, in words that fit after "cannot read PATH:".
"""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

LARGEST = 64 * 2**20
"""Largest file in bytes that is read whole, unless the caller sets another limit."""
LARGEST_MANIFEST = 2**20
"""Largest settings file in bytes, which a person writes."""
_OPENED_BY_THE_SHELL = ("/dev/", "/proc/self/fd/")
"""Where the user's own shell puts a pipe (`<(command)`); a pipe or device of any other name is refused."""


def content(path: Path, *, most: int = LARGEST, follow: bool = True, streams: bool = False) -> bytes:
    """Return the bytes of a regular file.

    `follow`: whether the file itself may be a symbolic link. `streams`: a pipe or device under /dev or
    /proc/self/fd is read as well, such as a shell's `<(command)`. Raises OSError, also for any other kind of file, for
    more than `most` bytes, and for an impossible name. Nothing is cut off.
    """
    with _opened(path, 0 if follow else os.O_NOFOLLOW) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if not streams or not str(path).startswith(_OPENED_BY_THE_SHELL):
                raise OSError(errno.EINVAL, "it is not a file", str(path))
            os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            held = file.read(most + 1)
    if len(held) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most / 2**20:g} MiB", str(path))
    return held


@contextmanager
def regular(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file of any size for reading. Raises OSError, also for any other kind of file."""
    with _opened(path, 0) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file


def text(path: Path, *, most: int = LARGEST, follow: bool = True, streams: bool = False) -> str:
    """Return the text of a file with its own line ends, without a byte-order mark.

    Raises OSError if the file cannot be read or is too large, and UnicodeDecodeError if it is not UTF-8.
    """
    return content(path, most=most, follow=follow, streams=streams).decode("utf-8-sig")


def reason(error: OSError | UnicodeDecodeError) -> str:
    """Return why a file could not be read as text, in words for a message."""
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"


def toml(held: str) -> dict[str, Any]:
    """Return a TOML document. Raises ValueError with one line, also for deep nesting or a huge number."""
    try:
        document = tomllib.loads(held)
        _check_integers(document)
        return document
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _check_integers(value: object) -> None:
    """Raise ValueError for an integer that TOML does not allow; a hexadecimal one may have millions of digits."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("an integer in it needs more than 64 bits")
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_integers(each)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags)
    except ValueError:  # a zero byte, or half of a surrogate pair
        raise OSError(errno.EINVAL, "no file can have such a name") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)
