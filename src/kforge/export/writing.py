"""Writes the files of an export into a new folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kforge import durable
from kforge.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPLATES = Path(__file__).parent / "templates"
LICENSE = TEMPLATES / "LICENSE"
"""kforge's licence, which goes with every copy of its runtime."""


@cache
def _environment() -> Environment:
    # the files are Python, TOML and Markdown, where HTML's escapes would be wrong
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701
    )


def filled(template: str, values: Mapping[str, object]) -> str:
    """Return the text of a template with these values. Raises jinja2's UndefinedError if it uses another name."""
    return _environment().get_template(template).render(values)


def write(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write the files, given by relative path, into a folder that is new or empty. Returns their paths.

    Raises InputError if the folder holds something or if a file would lie outside it, and RunError if a file cannot be
    written.
    """
    for name in files:
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{name!a} would lie outside {folder}, and nothing is written")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and is not an empty folder; name a new one")
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from error
    written = []
    for name, content in files.items():
        path = folder / name
        durable.make_folder(path.parent)
        durable.write(path, content)
        written.append(path)
    return written


def one_line(text: str) -> str:
    """Return a text that others wrote as one line without quotation marks and backslashes, for a source or a TOML
    string."""
    return " ".join(text.split()).replace("\\", "/").replace('"', "'")
