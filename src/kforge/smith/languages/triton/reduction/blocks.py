"""Describes blocks of elements with two axes: places, and the elements of each place.

A *place* is one combination of the indices that are neither reduced nor scanned: a row or a column of a matrix, for
example. Places are independent of each other. The elements of a place are those that are reduced or scanned; a program
walks through them. The block's last axis is the contiguous one in memory. Where places are rows, it holds the elements
of a place, and where they are columns, the places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.languages.indices import index_of, is_wide

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Nest

LANES = 32
"""Neighbouring elements that fill a whole line of memory."""
PROGRAMS = 264
"""Fewer programs than this leave a large device idle."""
PARTS = 512
"""Most parts into which one place is divided: the next kernel combines them in one block."""


class Block:
    """The two indices of a loop nest's blocks: `place` counts the places, and `i` the elements of a place."""

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
        """Make each block one row. Blocks then have one axis, and values per place are scalars.

        A block of shape [1, n] would give the same result, but Triton distributes it over threads in layouts that it
        must convert.
        """
        self.alone, self.axis, self.along_places, self.along_i = True, 0, "", ""

    def shape(self, places: int, step: int) -> str:
        if self.alone:
            return f"[{step}]"
        return f"[{places}, {step}]" if self.rows else f"[{step}, {places}]"

    def places_of(self, places: int, parts: int) -> list[str]:
        """Return a kernel's first lines: the places of a program, and its part of them where several programs (`parts`)
        share each place."""
        program, lines = f"tl.program_id(0){self.wide}", []
        if parts > 1:
            lines.append(f"part = tl.program_id(0) % {parts}")
            program = f"({program} // {parts})"
        return [*lines, f"place = {self.places_in(program, places)}"]

    def places_in(self, program: str, places: int) -> str:
        """Return an expression for the places of one program."""
        if self.alone:
            return program
        numbers = f"{program} * {places} + tl.arange(0, {places})" if places > 1 else f"{program} + tl.arange(0, 1)"
        return f"({numbers}){self.along_places}"

    def programs(self, places: int) -> int:
        return -(-self.place.size // places)

    def part_at(self, number: int, parts: int, part: str) -> str:
        """Return the address of a part's value between two kernels; `number`: which reduction or scan it belongs to."""
        first = number * self.place.size * parts
        place = f"place * {parts} + {part}" if self.rows else f"{part} * {self.place.size} + place"
        return f"{first} + {place}" if first else place
