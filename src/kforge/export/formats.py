"""The formats of an export, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.errors import InputError
from kforge.export import flashinfer, gpumode, hub, kernelbench, package, writing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kforge.export.solution import Solution

FORMATS: dict[str, Callable[[Solution], dict[str, str | bytes]]] = {
    "package": package.files,
    "kernelbench": kernelbench.files,
    "flashinfer": flashinfer.files,
    "gpumode": gpumode.files,
    "hf-kernels": hub.files,
}
"""For each format, the function that returns its files by relative path."""


def export(solution: Solution, folder: Path, form: str = "package") -> list[Path]:
    """Write a solution into a new folder in one of `FORMATS`, and return the paths of its files.

    Raises InputError if the format is unknown, if the folder is not empty, if the program imports a part of kforge that
    cannot be copied, or if an exported Python file would not be valid. Nothing is written then.
    """
    if form not in FORMATS:
        raise InputError(f"there is no format '{form}'; there are: {', '.join(FORMATS)}")
    return writing.write(folder, FORMATS[form](solution))
