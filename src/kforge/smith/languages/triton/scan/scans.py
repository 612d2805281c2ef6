"""Writes kernels for scans (running sums, products, maxima and minima) in Triton, with the maps before and after them.

A place (`blocks.py`) is one row or column that is scanned. A program instance goes through the elements of its places
in pieces, from the end for reversed scans, and carries the running value from one piece to the next. So memory is read
and written once. If there are few places with many elements, several instances share each place: a first kernel
computes the total of each part, and a second kernel starts each part with the total of the parts before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import maps_needed
from kforge.smith.languages.indices import block_of
from kforge.smith.languages.triton.functions import REDUCTIONS, SCANS, before
from kforge.smith.languages.triton.reduction.blocks import LANES, PARTS, PROGRAMS, Block
from kforge.smith.languages.triton.statements import Statements, launch, parameters

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Nest
    from kforge.smith.ir.graph import Graph, Node

HELD = 2048
"""Number of elements of a block."""
TOO_FEW = 64
"""If there are fewer program instances than this, and each would have more than `STEPS` pieces, several instances share
a place."""
STEPS = 16
FULL = 1056
"""Number of program instances below which each multiprocessor of a large device has at most eight of them. So few
cannot hide the latency of memory. Each then loads its next pieces in advance."""
AHEAD = 4
"""Number of pieces that are loaded in advance if there are few program instances."""


class ScanEmitter:
    """Writes the kernels of one loop nest with scans: their source (`texts`) and the statements that launch them
    (`launches`)."""

    def __init__(self, name: str, nest: Nest, graph: Graph, given: list[str]) -> None:
        self.name = name
        self.nest = nest
        self.graph = graph
        self.given = given
        self.block = Block(nest)
        self.backwards = nest.scans[0].arguments.backwards
        self.places, self.step = self._sizes()
        self.steps = -(-self.block.i.size // self.step)
        self.parts = self._parts()
        self.texts: list[str] = []
        self.launches: list[str] = []
        if self.parts > 1:
            self._measure()
        self._scan()

    @property
    def parts_size(self) -> int:
        """Number of totals that the first kernel stores for the second one. 0 if there is only one kernel."""
        return len(self.nest.scans) * self.block.place.size * self.parts if self.parts > 1 else 0

    # --- shapes ---------------------------------------------------------------------------------------------------

    def _sizes(self) -> tuple[int, int]:
        """Return the number of places per program instance, and the number of elements of each place in a piece."""
        places, length = block_of(self.block.place.size), block_of(self.block.i.size)
        if self.block.rows:
            step = min(HELD, length)
            return min(HELD // step, places), step
        return min(LANES, places), min(HELD // LANES, length)

    def _parts(self) -> int:
        programs = self.block.programs(self.places)
        if programs >= TOO_FEW or self.steps <= STEPS:
            return 1
        most = min(PARTS, self.steps // 4, 2 * PROGRAMS // programs)
        return -(-self.steps // -(-self.steps // most))  # leaves out parts that would be empty

    @property
    def _is_waiting(self) -> bool:
        """Whether so few program instances run that each should load its next pieces in advance."""
        return self.steps > AHEAD and self.block.programs(self.places) * self.parts < FULL

    # --- kernels --------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        """Write the kernel that computes the total of each part."""
        body = self._begun()
        for node in self.nest.scans:
            self._start(body, node, self._nothing(node, 1))
        inner = self._loop(body)
        for node in self.nest.scans:
            inner.compute(maps_needed(self.nest, node.sources))
            self._carry(inner, node, self._operand(inner, node))
        for node in self.nest.scans:
            whole = f"{node.name}_carry + {node.name}_lost" if node.function == "sum" else f"{node.name}_carry"
            mask = f", mask={body.masks['place']}" if "place" in body.masks else ""
            body.say(f"tl.store(parts + {self._part_at(node, 'part')}, {whole}{mask})")
        self._finish(f"{self.name}_parts", f"{self.nest.title}, each of {self.parts} parts", body)

    def _scan(self) -> None:
        body = self._begun()
        body.store(self.nest.before)
        for node in self.nest.scans:
            self._start(body, node, self._come_to(body, node) if self.parts > 1 else self._nothing(node, 1))
        inner = self._loop(body)
        for node in self.nest.sweeps[0].elements:
            if node.kind == "scan":
                self._scanned(inner, node)
            else:
                inner.compute([node])
        inner.store(self.nest.sweeps[0].elements)
        self._finish(self.name, self.nest.title, body)

    def _begun(self) -> Statements:
        """Return a new kernel body with its index variables, and masks if a block reaches beyond the end."""
        place, i = self.block.place, self.block.i
        masks = {} if place.size % self.places == 0 else {"place": f"(place < {place.size})"}
        if i.size % self.step:
            masks["i"] = f"(i < {i.size})"
        body = Statements(self.graph, self.nest, (place, i), masks)
        for line in self.block.places_of(self.places, self.parts):
            body.say(line)
        body.compute(self.nest.before)
        return body

    def _loop(self, body: Statements) -> Statements:
        """Write a loop over the pieces of a program instance, in the direction of the scan, and return the loop's
        body."""
        begin, end = "0", str(self.steps * self.step)
        if self.parts > 1:
            share = -(-self.steps // self.parts) * self.step
            begin, end = f"part * {share}", f"tl.minimum((part + 1) * {share}, {end})"
        counter, pieces = "passed" if self.backwards else "start", f"{begin}, {end}, {self.step}"
        loop = f"tl.range({pieces}, num_stages={AHEAD})" if self._is_waiting else f"range({pieces})"
        body.say(f"for {counter} in {loop}:")
        inner = body.nested()
        if self.backwards:
            inner.say(f"start = {(self.steps - 1) * self.step} - passed")
        inner.say(f"i = (start + tl.arange(0, {self.step})){self.block.along_i}")
        return inner

    def _finish(self, name: str, said: str, body: Statements) -> None:
        between = ["parts"] if self.parts > 1 else []
        given = ", ".join([parameters(self.nest), *between])
        self.texts.append(f"# {said}\n@triton.jit\ndef {name}({given}):\n" + "\n".join(body.lines) + "\n")
        warps = max(1, min(8, self.places * self.step // 256))
        programs = self.block.programs(self.places) * self.parts
        self.launches.append(launch(name, [programs], [*self.given, *between], warps))

    # --- scans ----------------------------------------------------------------------------------------------------

    def _start(self, body: Statements, node: Node, value: str) -> None:
        body.say(f"{node.name}_carry = {value}")
        if node.function == "sum":
            body.say(f"{node.name}_lost = {self._nothing(node, 1)}")

    def _nothing(self, node: Node, step: int) -> str:
        """Return an expression for a block filled with the neutral value of a scan."""
        return f"tl.full({self.block.shape(self.places, step)}, {REDUCTIONS[node.function].start}, tl.float32)"

    def _come_to(self, body: Statements, node: Node) -> str:
        """Write the load of the parts' totals, and return an expression for the total of all parts before the
        instance's own."""
        each = f"tl.arange(0, {block_of(self.parts)}){self.block.along_i}"
        masks = [f"({each} < part)", *([body.masks["place"]] if "place" in body.masks else [])]
        mask = f"mask={' & '.join(masks)}, other={REDUCTIONS[node.function].start}"
        body.say(f"{node.name}_parts = tl.load(parts + {self._part_at(node, each)}, {mask})")
        return SCANS[node.function].along.format(f"{node.name}_parts", self.block.axis)

    def _part_at(self, node: Node, part: str) -> str:
        return self.block.part_at(self.nest.scans.index(node), self.parts, part)

    def _operand(self, inner: Statements, node: Node) -> str:
        """Return the name of the elements to scan. Elements beyond the end have the neutral value."""
        value = inner.read(node.sources[0])
        if mask := inner.masks.get("i"):
            inner.say(f"{node.name}_each = tl.where({mask}, {value}, {REDUCTIONS[node.function].start})")
            return f"{node.name}_each"
        return value

    def _scanned(self, inner: Statements, node: Node) -> None:
        name, scan, value = node.name, SCANS[node.function], self._operand(inner, node)
        backwards = ", reverse=True" if self.backwards else ""
        if node.arguments.exclusive:
            pair, combine = f"({value}, {self._nothing(node, self.step)})", before(node.function)
            inner.say(f"{name}_all, {name}_own = tl.associative_scan({pair}, {self.block.axis}, {combine}{backwards})")
        else:
            inner.say(f"{name}_own = {scan.running.format(value, self.block.axis, backwards)}")
        own = f"({name}_own + {name}_lost)" if node.function == "sum" else f"{name}_own"
        inner.say(f"{name} = {scan.combine.format(f'{name}_carry', own)}")
        inner.values[name] = name
        self._carry(inner, node, value)

    def _carry(self, inner: Statements, node: Node, value: str) -> None:
        """Write the update of the running value after a piece."""
        name, scan = node.name, SCANS[node.function]
        piece = scan.along.format(value, self.block.axis)
        if node.function != "sum":
            inner.say(f"{name}_carry = {scan.combine.format(f'{name}_carry', piece)}")
            return
        inner.say(f"# The running sum is {name}_carry + {name}_lost, the rounding error of {name}_carry.")
        inner.say(f"{name}_piece = {piece} + {name}_lost")
        inner.say(f"{name}_grown = {name}_carry + {name}_piece")
        inner.say(f"{name}_shift = {name}_grown - {name}_carry")
        inner.say(f"{name}_lost = ({name}_carry - ({name}_grown - {name}_shift)) + ({name}_piece - {name}_shift)")
        inner.say(f"{name}_carry = {name}_grown")
