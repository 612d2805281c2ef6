"""Reads records from files that other people may have made. Every defect of such a file raises a RunError of one
line."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from kforge import durable
from kforge.errors import RunError
from kforge.records import Record
from kforge.records.faults import first_fault

if TYPE_CHECKING:
    from pathlib import Path

R = TypeVar("R", bound=Record)


def holds(path: Path, source: str) -> bool:
    """Return whether the path is a regular file that contains exactly this text."""
    try:
        return durable.read(path) == source.encode()
    except (OSError, RunError):
        return False


def read_record(path: Path, kind: type[R]) -> R:
    """Return the record in a file. Raises RunError if it cannot be read or contains something else."""
    return read_with_text(path, kind)[0]


def read_with_text(path: Path, kind: type[R]) -> tuple[R, bytes]:
    """Return the record in a file, and the file's text. Raises RunError if it cannot be read or is damaged."""
    text = read_bytes(path)
    return parse_record(text, path, kind), text


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file of a run. Raises RunError if it cannot be read."""
    try:
        return durable.read(path)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error


def parse_record(text: bytes, path: Path, kind: type[R]) -> R:
    """Return the record that a file's text contains. Raises RunError if it contains something else."""
    try:
        return kind.from_json(text)
    except ValidationError as error:
        raise RunError(f"{path} is damaged: {first_fault(error)}") from error


def is_file(path: Path) -> bool:
    """Return whether the path is a file. False for an invalid name, or one that may not be read."""
    with suppress(OSError, ValueError):
        return path.is_file()
    return False


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder. False for an invalid name, or one that may not be read."""
    with suppress(OSError, ValueError):
        return path.is_dir()
    return False
