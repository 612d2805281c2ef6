"""Kernels of regions with reductions. A block has two axes: independent places, and what is reduced.

    whole    a program holds its places' elements in registers: memory is read once
    looped   a program walks through its places' elements in pieces, once for every sweep; after the first, caches
             have most of them
    split    few places with many elements: programs share each, and leave parts for the next kernel to put together,
             always in the same order

Neighbours in memory are the last axis of a block, whether they are reduced (rows) or stand side by side (columns).
Sums are added up lane by lane and then in pairs, so no rounding error grows with the number of elements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kforge.smith.languages.triton.functions import REDUCTIONS
from kforge.smith.languages.triton.indices import block_of, index_of, is_wide
from kforge.smith.languages.triton.statements import Statements, launch, parameters, title
from kforge.smith.loops import elements_needed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kforge.smith.graph import Graph, Node
    from kforge.smith.languages.triton.plan import TritonPlan
    from kforge.smith.loops import Nest

IN_REGISTERS = 16384
"""Elements of a block that stay in a program's registers."""
LANES = 32
"""Neighbours side by side that make a whole line of memory."""
PROGRAMS = 264
"""Fewer than this leave a large device idle."""
PARTS = 512
"""Pieces of one place at most: the next kernel puts them together in one block."""


@dataclass(frozen=True)
class Shape:
    """How the work is cut: places a program, elements a step, and pieces that a place is split into."""

    places: int
    step: int
    parts: int
    whole: bool


class Emitter:
    """The kernels of one nest."""

    def __init__(self, name: str, nest: Nest, graph: Graph, plan: TritonPlan, given: list[str]) -> None:
        self.name = name
        self.given = given
        self.graph = graph
        self.plan = plan
        self.nest = replace(nest, kept=())  # what a later sweep needs is computed again: arithmetic is cheap here
        axes = range(len(nest.loops))
        self.place = index_of("place", nest, [axis for axis in axes if not nest.loops[axis].reduced])
        self.i = index_of("i", nest, [axis for axis in axes if nest.loops[axis].reduced])
        self.rows = nest.lanes_are_reduced
        self.axis = 1 if self.rows else 0
        self.shape = self._shape()
        self.reductions = [node for sweep in nest.sweeps for node in sweep.reductions]
        self.texts: list[str] = []
        self.launches: list[str] = []
        if self.shape.parts > 1:
            self._split()
        else:
            self._alone()

    @property
    def parts_size(self) -> int:
        """Elements of the memory between kernels."""
        return len(self.reductions) * self.place.size * self.shape.parts if self.shape.parts > 1 else 0

    # --- shapes ---------------------------------------------------------------------------------------------------

    def _shape(self) -> Shape:
        places, count, tile = self.place.size, self.i.size, self.plan.tile
        block = block_of(count)
        if self.rows:
            if block <= IN_REGISTERS:
                return Shape(self._filling(max(1, tile // block), 1), block, 1, True)
            # a program that alone keeps a processor busy leaves the next sweep's elements in the cache
            again = len(self.nest.sweeps) > 1 and places >= PROGRAMS
            width, step = 1, 4 * tile if again else tile
        else:
            if block * LANES <= IN_REGISTERS:
                return Shape(self._filling(max(LANES, min(128, 2 * tile // block)), LANES), block, 1, True)
            width = min(self._filling(128, LANES), block_of(places))
            step = min(block, max(1, tile // width))
        programs = -(-places // width)
        parts = min(PARTS, -(-count // (2 * step)), 2 * PROGRAMS // programs) if programs < PROGRAMS // 2 else 1
        return Shape(width, step, max(1, parts), False)

    def _filling(self, most: int, least: int) -> int:
        """Places a program, as many as leave enough programs."""
        width = min(most, block_of(self.place.size))
        while width > least and self.place.size < width * PROGRAMS:
            width //= 2
        return width

    def _warps(self) -> int:
        elements = self.shape.places * self.shape.step
        return max(1, min(16 if self.shape.whole else 32, elements // (32 * self.plan.share)))

    # --- one kernel -----------------------------------------------------------------------------------------------

    def _alone(self) -> None:
        body = self._begun(0)
        body.compute(self.nest.before)
        body.store(self.nest.before)
        for number, sweep in enumerate(self.nest.sweeps):
            if self.shape.whole:
                body.compute(sweep.elements)
                body.store(sweep.elements)
                self._reduce_block(body, sweep.reductions)
            else:
                self._loop(body, number, "0", str(self.i.size))
                self._reduce_lanes(body, sweep.reductions)
            body.compute(sweep.after)
            body.store((*sweep.reductions, *sweep.after))
        self._finish(self.name, title(self.nest), body, -(-self.place.size // self.shape.places), parts=False)

    def _begun(self, programs_of_a_place: int) -> Statements:
        """A kernel with its indices, masks where a block goes beyond the end."""
        width, step = self.shape.places, self.shape.step
        masks = {}
        if self.place.size % width:
            masks["place"] = f"(place < {self.place.size})"
        if self.i.size % step or (programs_of_a_place and self._piece() % step):
            masks["i"] = "inside" if programs_of_a_place else f"(i < {self.i.size})"
        body = Statements(self.graph, self.nest, (self.place, self.i), masks)
        wide = ".to(tl.int64)" if is_wide(self.nest) else ""
        program = f"tl.program_id(0){wide}"
        if programs_of_a_place:
            body.say(f"part = tl.program_id(0) % {programs_of_a_place}")
            program = f"({program} // {programs_of_a_place})"
        numbers = f"{program} * {width} + tl.arange(0, {width})" if width > 1 else f"{program} + tl.arange(0, 1)"
        body.say(f"place = ({numbers}){self._along_places()}")
        if self.shape.whole:
            body.say(f"i = tl.arange(0, {step}){self._along_i()}")
        return body

    def _along_places(self) -> str:
        return "[:, None]" if self.rows else "[None, :]"

    def _along_i(self) -> str:
        return "[None, :]" if self.rows else "[:, None]"

    def _reduce_block(self, body: Statements, reductions: Iterable[Node]) -> None:
        for node in reductions:
            reduction, value = REDUCTIONS[node.function], body.read(node.sources[0])
            if mask := body.masks.get("i"):
                value = f"tl.where({mask}, {value}, {reduction.start})"
            body.say(f"{node.name} = {reduction.along.format(value, self.axis)}")
            body.values[node.name] = node.name

    # --- loops ----------------------------------------------------------------------------------------------------

    def _loop(self, body: Statements, number: int, begin: str, end: str) -> None:
        """One sweep in pieces; reductions go on lane by lane."""
        sweep = self.nest.sweeps[number]
        width, step = self.shape.places, self.shape.step
        block = f"[{width}, {step}]" if self.rows else f"[{step}, {width}]"
        for node in sweep.reductions:
            body.say(f"{node.name}_lanes = tl.full({block}, {REDUCTIONS[node.function].start}, tl.float32)")
        self._read_places(body, number)
        body.say(f"for start in range({begin}, {end}, {step}):")
        last = number == len(self.nest.sweeps) - 1
        # the next sweep reads it all again, the last one is the last to do so
        hint = "" if len(self.nest.sweeps) == 1 else f', eviction_policy="evict_{"first" if last else "last"}"'
        inner = body.nested(hint)
        inner.say(f"i = (start + tl.arange(0, {step})){self._along_i()}")
        if inner.masks.get("i") == "inside":
            inner.say(f"inside = i < {end}")
        needed = elements_needed(self.nest, number)
        inner.compute(needed)
        own = {node.name for node in sweep.elements}
        inner.store(node for node in needed if node.name in own)
        for node in sweep.reductions:
            reduction, value = REDUCTIONS[node.function], inner.read(node.sources[0])
            if mask := inner.masks.get("i"):
                value = f"tl.where({mask}, {value}, {reduction.start})"
            inner.say(f"{node.name}_lanes = {reduction.combine.format(f'{node.name}_lanes', value)}")

    def _read_places(self, body: Statements, number: int) -> None:
        """What does not change along a loop is read before it."""
        for node in elements_needed(self.nest, number):
            for source in node.sources:
                if any(b.name == source and not self.i.moves(b.steps) for b in self.nest.buffers):
                    body.read(source)

    def _reduce_lanes(self, body: Statements, reductions: Iterable[Node]) -> None:
        for node in reductions:
            body.say(f"{node.name} = {REDUCTIONS[node.function].along.format(f'{node.name}_lanes', self.axis)}")
            body.values[node.name] = node.name

    # --- several kernels ------------------------------------------------------------------------------------------

    def _piece(self) -> int:
        """Elements of a part: whole steps, but for the last one."""
        steps = -(-self.i.size // self.shape.step)
        return -(-steps // self.shape.parts) * self.shape.step

    def _split(self) -> None:
        """A kernel for every sweep, and one for what is left after the last."""
        sweeps = self.nest.sweeps
        for number, sweep in enumerate(sweeps):
            body = self._begun(self.shape.parts)
            self._known_so_far(body, number)
            body.say(f"end = tl.minimum((part + 1) * {self._piece()}, {self.i.size})")
            self._loop(body, number, f"part * {self._piece()}", "end")
            self._reduce_lanes(body, sweep.reductions)
            for node in sweep.reductions:
                mask = f", mask={body.masks['place']}" if "place" in body.masks else ""
                body.say(f"tl.store(parts + {self._part_of(node, 'part')}, {node.name}{mask})")
            name = f"{self.name}_sweep{number + 1}"
            programs = -(-self.place.size // self.shape.places) * self.shape.parts
            self._finish(name, f"{title(self.nest)}, sweep {number + 1} of {len(sweeps)}", body, programs, parts=True)
        if any(node.name in self.nest.outputs for node in self._of_places()):
            body = self._begun(0)
            self._known_so_far(body, len(sweeps))
            body.store(self._of_places())
            programs = -(-self.place.size // self.shape.places)
            self._finish(f"{self.name}_end", f"{title(self.nest)}, put together", body, programs, parts=True)

    def _of_places(self) -> list[Node]:
        return [*self.nest.before, *(n for sweep in self.nest.sweeps for n in (*sweep.reductions, *sweep.after))]

    def _known_so_far(self, body: Statements, number: int) -> None:
        """The values of places after so many sweeps, out of their parts."""
        body.compute(self.nest.before)
        parts = block_of(self.shape.parts)
        for sweep in self.nest.sweeps[:number]:
            for node in sweep.reductions:
                reduction = REDUCTIONS[node.function]
                each = f"tl.arange(0, {parts}){self._along_i()}"
                masks = [body.masks["place"]] if "place" in body.masks else []
                masks += [f"({each} < {self.shape.parts})"] if parts != self.shape.parts else []
                mask = f", mask={' & '.join(masks)}, other={reduction.start}" if masks else ""
                body.say(f"{node.name}_parts = tl.load(parts + {self._part_of(node, each)}{mask})")
                body.say(f"{node.name} = {reduction.along.format(f'{node.name}_parts', self.axis)}")
                body.values[node.name] = node.name
            body.compute(sweep.after)

    def _part_of(self, node: Node, part: str) -> str:
        first = self.reductions.index(node) * self.place.size * self.shape.parts
        place = f"place * {self.shape.parts} + {part}" if self.rows else f"{part} * {self.place.size} + place"
        return f"{first} + {place}" if first else place

    def _finish(self, name: str, said: str, body: Statements, programs: int, *, parts: bool) -> None:
        given = parameters(self.nest) + (", parts" if parts else "")
        self.texts.append(f"# {said}\n@triton.jit\ndef {name}({given}):\n" + "\n".join(body.lines) + "\n")
        arguments = [*self.given, "parts"] if parts else self.given
        self.launches.append(launch(name, [programs], arguments, self._warps()))
