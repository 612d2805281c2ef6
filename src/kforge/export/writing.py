"""Writes the files of an export into a new folder."""

from __future__ import annotations

import json
import warnings
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
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701
    )
    # not jinja2's tojson: its halves of UTF-16 pairs are other characters in Python, and no characters in TOML and YAML
    environment.filters |= {"python": repr, "quoted": _quoted}
    return environment


def _quoted(value: object) -> str:
    """Return a text, or a list of texts, as a literal of TOML and YAML."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def filled(template: str, values: Mapping[str, object]) -> str:
    """Return the text of a template with these values. Raises jinja2's UndefinedError if it uses another name."""
    return _environment().get_template(template).render(values)


def write(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write the files, given by relative path, into a folder that is new or empty. Returns their paths.

    Raises InputError if the folder holds something, if a file would lie outside it, or if a Python file is not valid.
    Raises RunError if a file cannot be written.
    """
    check_python(files)
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


def check_python(files: Mapping[str, str | bytes]) -> None:
    """Compile every Python file of an export in memory; nothing is executed. Raises InputError if one is not valid."""
    for name, content in files.items():
        if not name.endswith(".py"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the user's own text
                # as bytes, so that a declared encoding counts, as it does when the file is imported
                source = content.encode() if isinstance(content, str) else content
                compile(source, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            said = f"the exported file {name!a} is not valid Python, and nothing is written: {reason}"
            raise InputError(said) from None


def one_line(text: str) -> str:
    """Return a text that others wrote as one line of printable characters without quotation marks and backslashes, for
    a comment or a docstring."""
    shown = "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))
    return shown.replace("\\", "/").replace('"', "'")
