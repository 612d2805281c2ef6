"""Records in files that others may have made: everything that is wrong with one is a RunError of one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from kforge import durable
from kforge.errors import RunError
from kforge.records import Record

if TYPE_CHECKING:
    from pathlib import Path

R = TypeVar("R", bound=Record)


def holds(path: Path, source: str) -> bool:
    """Whether a plain file holds just this text."""
    try:
        return durable.read(path) == source.encode()
    except (OSError, RunError):
        return False


def read_record(path: Path, kind: type[R]) -> R:
    """A record from its file. Raises RunError when it cannot be read, or holds something else."""
    return read_with_text(path, kind)[0]


def read_with_text(path: Path, kind: type[R]) -> tuple[R, bytes]:
    """A record from its file, and the text it was read from. Raises RunError."""
    text = read_bytes(path)
    return parse_record(text, path, kind), text


def read_bytes(path: Path) -> bytes:
    """What a file of a run holds. Raises RunError when it cannot be read."""
    try:
        return durable.read(path)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error


def parse_record(text: bytes, path: Path, kind: type[R]) -> R:
    """A record from the text of its file. Raises RunError when it holds something else."""
    try:
        return kind.from_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = " ".join(first["msg"].split())
        raise RunError(f"{path} is damaged: {where + ': ' if where else ''}{reason}") from error
