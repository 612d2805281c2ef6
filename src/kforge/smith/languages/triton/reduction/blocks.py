"""A block of elements has two axes: independent places, and what a program goes through at each of them.

Neighbours in memory are its last axis, whether they are gone through (rows) or stand side by side (columns).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.languages.triton.indices import index_of, is_wide

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Nest

LANES = 32
"""Neighbours side by side that make a whole line of memory."""
PROGRAMS = 264
"""Fewer than this leave a large device idle."""
PARTS = 512
"""Pieces of one place at most: the next kernel puts them together in one block."""


class Block:
    """How a nest's loops lie in blocks: `place` counts the independent ones, and `i` the others."""

    def __init__(self, nest: Nest) -> None:
        axes = range(len(nest.loops))
        self.place = index_of("place", nest, [axis for axis in axes if not nest.loops[axis].reduced])
        self.i = index_of("i", nest, [axis for axis in axes if nest.loops[axis].reduced])
        self.rows = nest.lanes_are_reduced
        self.alone = False
        self.axis = 1 if self.rows else 0
        self.along_places = "[:, None]" if self.rows else "[None, :]"
        self.along_i = "[None, :]" if self.rows else "[:, None]"
        self.wide = ".to(tl.int64)" if is_wide(nest) else ""

    def of_one_place(self) -> None:
        """Rows one by one: a block has one axis then, and what there is one of in a row is no block at all.

        Blocks of a single row are the same, but Triton lays them out over its threads in ways that it must undo.
        """
        self.alone, self.axis, self.along_places, self.along_i = True, 0, "", ""

    def shape(self, places: int, step: int) -> str:
        if self.alone:
            return f"[{step}]"
        return f"[{places}, {step}]" if self.rows else f"[{step}, {places}]"

    def places_of(self, places: int, parts: int) -> list[str]:
        """The first lines of a kernel: which places a program has, and which part of them where they are shared."""
        program, lines = f"tl.program_id(0){self.wide}", []
        if parts > 1:
            lines.append(f"part = tl.program_id(0) % {parts}")
            program = f"({program} // {parts})"
        return [*lines, f"place = {self.places_in(program, places)}"]

    def places_in(self, program: str, places: int) -> str:
        """Those of one program."""
        if self.alone:
            return program
        numbers = f"{program} * {places} + tl.arange(0, {places})" if places > 1 else f"{program} + tl.arange(0, 1)"
        return f"({numbers}){self.along_places}"

    def programs(self, places: int) -> int:
        return -(-self.place.size // places)

    def part_at(self, number: int, parts: int, part: str) -> str:
        """Where a part's value lies between two kernels; `number`: which reduction or scan it is of."""
        first = number * self.place.size * parts
        place = f"place * {parts} + {part}" if self.rows else f"{part} * {self.place.size} + place"
        return f"{first} + {place}" if first else place
