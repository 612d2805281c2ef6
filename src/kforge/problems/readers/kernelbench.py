"""Reads a checkout of KernelBench: `KernelBench/level{1,2,3}/N_name.py`. Each file has the form of kforge's own problem
files.

Level 4 is refused, because its problems load a pretrained model from a hub when they are constructed: the weights are
not in the file, and nothing that is judged may use the network.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from kforge.problems.discovery import natural
from kforge.problems.readers.protocol import Entry, Variant
from kforge.problems.source import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEVEL = re.compile(r"level(\d+)")
"""Names of the folders of levels."""
NUMBERED = re.compile(r"(\d+)_.*\.py")
"""Names of problem files. Other files in the folder of a level are not problems."""
REFUSED_LEVEL = 4
"""The level whose problems load pretrained models."""
REFUSAL = "level 4 is not read: its problems download a pretrained model, and kforge judges without a network"


class KernelBenchReader:
    """Reads a checkout of KernelBench."""

    name = "kernelbench"

    def recognizes(self, folder: Path) -> bool:
        return any(NUMBERED.fullmatch(file.name) for level, _ in _levels(folder) for file in level.iterdir())

    def read(self, folder: Path) -> Iterator[Entry]:
        for level, number in _levels(folder):
            files = [file for file in level.iterdir() if NUMBERED.fullmatch(file.name)]
            for file in sorted(files, key=natural):
                yield _entry(file, number)


def _levels(folder: Path) -> list[tuple[Path, int]]:
    """Return the folders of the levels with their numbers, from the checkout or from its folder `KernelBench`."""
    inside = folder / "KernelBench"
    found = [
        (path, int(match[1]))
        for path in (inside if inside.is_dir() else folder).iterdir()
        if path.is_dir() and (match := LEVEL.fullmatch(path.name))
    ]
    return sorted(found, key=lambda each: each[1])


def _entry(file: Path, level: int) -> Entry:
    match = NUMBERED.fullmatch(file.name)
    assert match is not None
    return Entry(
        name=f"level{level}/{file.stem}",
        variants=(Variant(name="", make=partial(load, file)),),
        level=level,
        number=int(match[1]),
        refused=REFUSAL if level == REFUSED_LEVEL else None,
    )
