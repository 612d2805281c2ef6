"""Kernels of regions with reductions. What a block (`blocks.py`) goes through is reduced.

    whole    a program holds its places' elements in registers: memory is read once
    looped   a program walks through its places' elements in pieces, once for every sweep; after the first, caches
             have most of them
    split    few places with many elements: programs share each, and leave parts for the next kernel to put together,
             always in the same order

Sums are added up lane by lane and then in pairs, so no rounding error grows with the number of elements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kforge.smith.languages.triton.blocks import LANES, PARTS, PROGRAMS, Block
from kforge.smith.languages.triton.functions import REDUCTIONS
from kforge.smith.languages.triton.indices import block_of
from kforge.smith.languages.triton.statements import Statements, launch, parameters, title
from kforge.smith.loops import elements_needed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kforge.smith.graph import Graph, Node
    from kforge.smith.languages.triton.plan import TritonPlan
    from kforge.smith.loops import Nest

IN_REGISTERS = 16384
"""Elements of a block that stay in a program's registers."""


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
        self.block = Block(nest)
        self.place, self.i = self.block.place, self.block.i
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
        if self.block.rows:
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
        programs = self.block.programs(width)
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
        body = self._begun(1)
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
        self._finish(self.name, title(self.nest), body, 1)

    def _begun(self, parts: int) -> Statements:
        """A kernel with its indices, masks where a block goes beyond the end."""
        width, step = self.shape.places, self.shape.step
        masks = {}
        if self.place.size % width:
            masks["place"] = f"(place < {self.place.size})"
        if self.i.size % step:
            masks["i"] = "inside" if parts > 1 else f"(i < {self.i.size})"
        body = Statements(self.graph, self.nest, (self.place, self.i), masks)
        for line in self.block.places_of(width, parts):
            body.say(line)
        if self.shape.whole:
            body.say(f"i = tl.arange(0, {step}){self.block.along_i}")
        return body

    def _reduce_block(self, body: Statements, reductions: Iterable[Node]) -> None:
        for node in reductions:
            reduction, value = REDUCTIONS[node.function], body.read(node.sources[0])
            if mask := body.masks.get("i"):
                value = f"tl.where({mask}, {value}, {reduction.start})"
            body.say(f"{node.name} = {reduction.along.format(value, self.block.axis)}")
            body.values[node.name] = node.name

    # --- loops ----------------------------------------------------------------------------------------------------

    def _loop(self, body: Statements, number: int, begin: str, end: str) -> None:
        """One sweep in pieces; reductions go on lane by lane."""
        sweep = self.nest.sweeps[number]
        step = self.shape.step
        block = self.block.shape(self.shape.places, step)
        for node in sweep.reductions:
            body.say(f"{node.name}_lanes = tl.full({block}, {REDUCTIONS[node.function].start}, tl.float32)")
        self._read_places(body, number)
        body.say(f"for start in range({begin}, {end}, {step}):")
        last = number == len(self.nest.sweeps) - 1
        # the next sweep reads it all again, the last one is the last to do so
        hint = "" if len(self.nest.sweeps) == 1 else f', eviction_policy="evict_{"first" if last else "last"}"'
        inner = body.nested(hint)
        inner.say(f"i = (start + tl.arange(0, {step})){self.block.along_i}")
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
            body.say(f"{node.name} = {REDUCTIONS[node.function].along.format(f'{node.name}_lanes', self.block.axis)}")
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
                body.say(f"tl.store(parts + {self._part_at(node, 'part')}, {node.name}{mask})")
            name = f"{self.name}_sweep{number + 1}"
            self._finish(name, f"{title(self.nest)}, sweep {number + 1} of {len(sweeps)}", body, self.shape.parts)
        if any(node.name in self.nest.outputs for node in self._of_places()):
            body = self._begun(1)
            self._known_so_far(body, len(sweeps))
            body.store(self._of_places())
            self._finish(f"{self.name}_end", f"{title(self.nest)}, put together", body, 1)

    def _of_places(self) -> list[Node]:
        return [*self.nest.before, *(n for sweep in self.nest.sweeps for n in (*sweep.reductions, *sweep.after))]

    def _known_so_far(self, body: Statements, number: int) -> None:
        """The values of places after so many sweeps, out of their parts."""
        body.compute(self.nest.before)
        parts = block_of(self.shape.parts)
        for sweep in self.nest.sweeps[:number]:
            for node in sweep.reductions:
                reduction = REDUCTIONS[node.function]
                each = f"tl.arange(0, {parts}){self.block.along_i}"
                masks = [body.masks["place"]] if "place" in body.masks else []
                masks += [f"({each} < {self.shape.parts})"] if parts != self.shape.parts else []
                mask = f", mask={' & '.join(masks)}, other={reduction.start}" if masks else ""
                body.say(f"{node.name}_parts = tl.load(parts + {self._part_at(node, each)}{mask})")
                body.say(f"{node.name} = {reduction.along.format(f'{node.name}_parts', self.block.axis)}")
                body.values[node.name] = node.name
            body.compute(sweep.after)

    def _part_at(self, node: Node, part: str) -> str:
        return self.block.part_at(self.reductions.index(node), self.shape.parts, part)

    def _finish(self, name: str, said: str, body: Statements, programs_of_a_place: int) -> None:
        between = ["parts"] if self.shape.parts > 1 else []
        given = ", ".join([parameters(self.nest), *between])
        self.texts.append(f"# {said}\n@triton.jit\ndef {name}({given}):\n" + "\n".join(body.lines) + "\n")
        programs = self.block.programs(self.shape.places) * programs_of_a_place
        self.launches.append(launch(name, [programs], [*self.given, *between], self._warps()))
