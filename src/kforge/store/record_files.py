"""Reads records from files that others may have made. Every defect of such a file is a RunError of one line."""

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
    """Return whether a regular file holds exactly this text."""
    try:
        return durable.read(path) == source.encode()
    except (OSError, RunError):
        return False


def read_record(path: Path, kind: type[R]) -> R:
    """Read a record from its file. Raises RunError when it cannot be read, or holds something else."""
    return read_with_text(path, kind)[0]


def read_with_text(path: Path, kind: type[R]) -> tuple[R, bytes]:
    """Read a record and the text of its file. Raises RunError."""
    text = read_bytes(path)
    return parse_record(text, path, kind), text


def read_bytes(path: Path) -> bytes:
    """Read the bytes of a file of a run. Raises RunError when it cannot be read."""
    try:
        return durable.read(path)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error


def parse_record(text: bytes, path: Path, kind: type[R]) -> R:
    """Parse a record from the text of its file. Raises RunError when it holds something else."""
    try:
        return kind.from_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = " ".join(first["msg"].split())
        raise RunError(f"{path} is damaged: {where + ': ' if where else ''}{reason}") from error
