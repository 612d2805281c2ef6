"""Describes blocks of elements with two axes: places, and the elements of each place.

A *place* is one combination of the indices that are neither reduced nor scanned: for example a row or a column of a
matrix. Places are independent of each other. The elements of a place are those that are reduced or scanned; a program
instance goes through them. The block's last axis is the one that is contiguous in memory. If places are rows, it holds
the elements of a place; if places are columns, it holds the places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.languages.indices import index_of, is_wide

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Nest

LANES = 32
"""Number of neighbouring elements that fill a cache line."""
PROGRAMS = 264
"""Number of program instances below which a large device is partly idle."""
PARTS = 512
"""Most parts into which one place is divided. The next kernel combines all parts of a place in one block."""


class Block:
    """The two index variables of a loop nest's blocks: `place` counts the places, and `i` the elements of a place."""

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
        """Make each block a single row, with one axis. Values per place are then scalars.

        A block of shape [1, n] would give the same result, but Triton would distribute it over threads in layouts that
        it must convert.
        """
        self.alone, self.axis, self.along_places, self.along_i = True, 0, "", ""

    def shape(self, places: int, step: int) -> str:
        if self.alone:
            return f"[{step}]"
        return f"[{places}, {step}]" if self.rows else f"[{step}, {places}]"

    def places_of(self, places: int, parts: int) -> list[str]:
        """Return the first lines of a kernel. They compute the places of a program instance and, if `parts` instances
        share each place, which part this instance has."""
        program, lines = f"tl.program_id(0){self.wide}", []
        if parts > 1:
            lines.append(f"part = tl.program_id(0) % {parts}")
            program = f"({program} // {parts})"
        return [*lines, f"place = {self.places_in(program, places)}"]

    def places_in(self, program: str, places: int) -> str:
        """Return the expression for the places of one program instance."""
        if self.alone:
            return program
        numbers = f"{program} * {places} + tl.arange(0, {places})" if places > 1 else f"{program} + tl.arange(0, 1)"
        return f"({numbers}){self.along_places}"

    def programs(self, places: int) -> int:
        return -(-self.place.size // places)

    def part_at(self, number: int, parts: int, part: str) -> str:
        """Return the address of a partial result that one kernel passes to the next. `number` says which reduction or
        scan it belongs to."""
        first = number * self.place.size * parts
        place = f"place * {parts} + {part}" if self.rows else f"{part} * {self.place.size} + place"
        return f"{first} + {place}" if first else place
