"""Writes scans (running sums, products, maxima and minima) for the SIMT languages, with the maps before and after them.

Columns and short rows: one thread scans a whole place. Longer rows: a thread group goes through a row in tiles. Each
thread combines a few neighbours, the group scans these totals in shared memory, and each thread goes through its
elements again, beginning with the total before them. Few long rows: several groups share a row, and a first kernel
computes the total of each part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import maps_needed
from kforge.smith.languages.indices import block_of, index_of, is_wide
from kforge.smith.languages.simt.code import Code, Value
from kforge.smith.languages.simt.dialect import GROUP_INDEX, THREAD_INDEX, Kernel
from kforge.smith.languages.simt.elements import Elements, Memories
from kforge.smith.languages.simt.functions import scanned, start
from kforge.smith.languages.simt.teams import FILLED, LANES

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Nest
    from kforge.smith.ir.graph import Graph, Node
    from kforge.smith.languages.simt.dialect import Dialect
    from kforge.smith.languages.simt.plan import SimtPlan

TOTALS = "totals"
"""Name of the parameter that holds the total of each part of a row."""
SHORT = 32
"""Rows of at most this many elements are scanned by one thread each."""
EACH = 4
"""Number of neighbouring elements that one thread scans in each tile."""


class Scans:
    """Writes the kernels of a nest with scans, and keeps them in `kernels`."""

    def __init__(self, name: str, nest: Nest, graph: Graph, plan: SimtPlan, dialect: Dialect) -> None:
        self.name, self.nest, self.dialect = name, nest, dialect
        self.memories = Memories(nest, graph)
        loops = list(enumerate(nest.loops))
        self.place = index_of("place", nest, [axis for axis, loop in loops if not loop.reduced], "/")
        self.i = index_of("i", nest, [axis for axis, loop in loops if loop.reduced], "/")
        self.kind = "int64" if is_wide(nest) and dialect.has_int64 else "int32"
        self.nodes = nest.sweeps[0].elements
        self.before = maps_needed(nest, [source for scan in nest.scans for source in scan.sources])
        self.backwards = nest.scans[0].arguments.backwards
        group = min(plan.group, dialect.most_threads)
        self.alone = not nest.lanes_are_reduced or self.i.size <= SHORT
        """Whether one thread scans a whole place."""
        self.group = group if self.alone else max(LANES, min(group, block_of(-(-self.i.size // EACH))))
        self.parts = 1
        if not self.alone and self.place.size < FILLED:
            self.parts = max(1, min(plan.parts, self.i.size // (8 * EACH * self.group), FILLED // self.place.size))
        while self.alone and self.group > LANES and self.place.size < self.group * FILLED:
            self.group //= 2
        self.kernels: list[Kernel] = []
        if self.alone:
            self._by_threads()
            return
        if self.parts > 1:
            self._by_groups(f"{name}_totals", stores=False)
        self._by_groups(name, stores=True)

    @property
    def parts_size(self) -> int:
        return len(self.nest.scans) * self.place.size * self.parts if self.parts > 1 else 0

    # --- kernels ------------------------------------------------------------------------------------------------

    def _begin(self, name: str, groups: int) -> Code:
        kernel = Kernel(name, self.nest.title, self.group, groups)
        code = Code(self.dialect, kernel)
        self.memories.declare(code)
        if self.parts > 1:
            code.parameter(TOTALS, "float32", written=True)
        self.kernels.append(kernel)
        return code

    def _by_threads(self) -> None:
        code = self._begin(self.name, -(-self.place.size // self.group))
        number = self.dialect.cast(self.kind, GROUP_INDEX) if self.kind == "int64" else GROUP_INDEX
        code.let("place", self.kind, f"{number} * {self.group} + {THREAD_INDEX}")
        with code.when(f"place < {self.place.size}" if self.place.size % self.group else ""):
            for node in self.nest.scans:
                code.var(f"{node.name}_running", "float32", start(self.dialect, node.function))
            with code.loop("count", self.i.size, kind=self.kind):
                self._walk(code, stores=True)

    def _by_groups(self, name: str, *, stores: bool) -> None:
        tile = self.group * EACH
        code = self._begin(name, self.place.size * self.parts)
        number = self.dialect.cast(self.kind, GROUP_INDEX) if self.kind == "int64" else GROUP_INDEX
        begin, end = "0", str(self.i.size)
        if self.parts > 1:
            length = -(-self.i.size // (self.parts * tile)) * tile
            code.let("part", "int32", f"{GROUP_INDEX} % {self.parts}")
            begin = code.let("begin", self.kind, f"part * {length}")
            end = code.let("end", self.kind, self._smaller(f"begin + {length}", str(self.i.size)))
            number = f"{number} / {self.parts}"
        code.let("place", self.kind, number)
        for node in self.nest.scans:
            carry = code.var(f"{node.name}_carry", "float32", start(self.dialect, node.function))
            if self.parts > 1 and stores:
                with code.loop("earlier", "part"):
                    total = code.load(TOTALS, self._total(node, "earlier")).text
                    code.assign(carry, scanned(code, node.function, carry, total))
        with code.loop("tile", end, begin, tile, kind=self.kind):
            code.let("own", self.kind, f"tile + {THREAD_INDEX} * {EACH}")
            code.let("stop", self.kind, self._smaller(f"own + {EACH}", end))
            for node in self.nest.scans:
                code.var(f"{node.name}_running", "float32", start(self.dialect, node.function))
            with code.loop("count", "stop", "own", kind=self.kind):
                self._walk(code, stores=False)
            for node in self.nest.scans:
                self._across(code, node)
            if stores:
                with code.loop("count", "stop", "own", kind=self.kind):
                    self._walk(code, stores=True)
        if not stores:
            with code.when(f"{THREAD_INDEX} == 0"):
                for node in self.nest.scans:
                    code.store(TOTALS, self._total(node, "part"), Value(f"{node.name}_carry", "float32"))

    def _total(self, node: Node, part: str) -> str:
        first = self.nest.scans.index(node) * self.place.size * self.parts
        return f"{first} + place * {self.parts} + {part}"

    def _smaller(self, one: str, other: str) -> str:
        return self.dialect.select(f"{one} < {other}", one, other)

    def _across(self, code: Code, node: Node) -> None:
        """Write the scan over the totals of the group's threads. Each thread then has the total before its own
        elements, and the carry for the next tile."""
        running, carry = f"{node.name}_running", f"{node.name}_carry"
        memory = code.shared("float32", f"of_{node.function}", self.group)
        own = f"{memory}[{THREAD_INDEX}]"
        code.assign(own, running)
        code.barrier()
        reach = code.var(code.name("reach"), "int32", "1")
        with code.loop(code.name("level"), self.group.bit_length() - 1):
            other = code.var("other", "float32", start(self.dialect, node.function))
            with code.when(f"{THREAD_INDEX} >= {reach}"):
                code.assign(other, f"{memory}[{THREAD_INDEX} - {reach}]")
            code.barrier()
            code.assign(own, scanned(code, node.function, other, own))
            code.barrier()
            code.assign(reach, f"{reach} * 2")
        code.assign(running, carry)
        with code.when(f"{THREAD_INDEX} > 0"):
            code.assign(running, scanned(code, node.function, carry, f"{memory}[{THREAD_INDEX} - 1]"))
        code.assign(carry, scanned(code, node.function, carry, f"{memory}[{self.group - 1}]"))
        code.barrier()

    def _walk(self, code: Code, *, stores: bool) -> None:
        """Write the statements for one element. With `stores=False` they only update the running values of the
        scans."""
        code.let("i", self.kind, f"{self.i.size - 1} - count" if self.backwards else "count")
        body = Elements(code, self.memories, (self.place, self.i))
        if not stores:
            body.compute(self.before)
            for node in self.nest.scans:
                self._combine(body, node)
            return
        for node in self.nodes:
            if node.kind != "scan":
                body.compute([node])
                continue
            if node.arguments.exclusive:
                value = code.let(code.name(f"{node.name}_value"), "float32", f"{node.name}_running")
                self._combine(body, node)
            else:
                self._combine(body, node)
                value = code.let(code.name(f"{node.name}_value"), "float32", f"{node.name}_running")
            body.values[node.name] = Value(value, "float32")
        body.store(self.nodes)

    def _combine(self, body: Elements, node: Node) -> None:
        running = f"{node.name}_running"
        value = body.code.converted(body.read(node.sources[0]), "float32")
        body.code.assign(running, scanned(body.code, node.function, running, value))
