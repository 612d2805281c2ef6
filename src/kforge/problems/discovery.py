"""Finds the problem files of a directory."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kforge.errors import ProblemError
from kforge.problems.source import REQUIRED_NAMES, missing_names, parse, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator


class Survey(NamedTuple):
    """The problem files under a path, and the files that could not be read."""

    problems: list[Path]
    """The problem files in natural order (2 before 10)."""
    unreadable: dict[Path, ProblemError]
    """Python files that cannot be read, with the error. They may or may not be problems."""


def discover(path: Path) -> list[Path]:
    """Return the problem files under a path: the file itself, or all in a directory at any depth.

    Unreadable files are left out. Raises ProblemError if the path does not exist or contains no problem.
    """
    return survey(path).problems


def survey(path: Path) -> Survey:
    """Return the problem files under a path, and the unreadable files.

    A problem file is a `*.py` that defines the required names. Hidden folders and `__pycache__` are skipped. Raises
    ProblemError if the path does not exist or contains no problem.
    """
    if path.is_file():
        return Survey([path], {})
    if not path.is_dir():
        raise ProblemError(f"{path}: no such file or directory")
    problems: list[Path] = []
    unreadable: dict[Path, ProblemError] = {}
    for file in sorted(_python_files(path), key=natural):
        try:
            if not missing_names(parse(read_source(file), str(file))):
                problems.append(file)
        except ProblemError as error:
            unreadable[file] = error
    if not problems:
        wanted = f"{', '.join(REQUIRED_NAMES[:-1])} and {REQUIRED_NAMES[-1]}"
        first = next(iter(unreadable.values()), None)
        doubt = f"; skipped {len(unreadable)} unreadable, the first being {first}" if first else ""
        raise ProblemError(f"{path}: no problem files here (*.py that define {wanted}){doubt}")
    return Survey(problems, unreadable)


def _python_files(folder: Path) -> Iterator[Path]:
    """Yield all Python files in a folder at any depth, except hidden ones."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        yield from (Path(parent, name) for name in files if name.endswith(".py") and not name.startswith("."))


def natural(path: Path) -> tuple[list[list[str | int]], str]:
    """Return a sort key that compares numbers in names by their value."""
    # Splitting at digits alternates text and number, so two keys always compare like with like.
    parts = [re.split(r"(\d+)", part.casefold()) for part in path.parts]
    keys: list[list[str | int]] = [[int(piece) if i % 2 else piece for i, piece in enumerate(p)] for p in parts]
    return keys, str(path)
