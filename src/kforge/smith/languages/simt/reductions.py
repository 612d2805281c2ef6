"""Writes reductions, softmax and norms for the SIMT languages: sweeps over the elements of each place, and the values
computed from each sweep's result.

If there are enough places, one kernel does all sweeps. If there are few long places, several thread groups share each.
Each sweep with a reduction is then a kernel of its own that stores partial results, and the next kernel combines them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import elements_needed
from kforge.smith.languages.indices import index_of, is_wide
from kforge.smith.languages.simt.code import Code, Value, all_of
from kforge.smith.languages.simt.dialect import GROUP_INDEX, Kernel
from kforge.smith.languages.simt.elements import Elements, Memories
from kforge.smith.languages.simt.functions import combined, start
from kforge.smith.languages.simt.teams import PIECE, reduced, team_for

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Buffer, Nest, Sweep
    from kforge.smith.ir.graph import Graph, Node
    from kforge.smith.languages.simt.dialect import Dialect
    from kforge.smith.languages.simt.plan import SimtPlan

PARTIAL = "parts"
"""Name of the parameter for the partial results that one kernel passes to the next."""
MOST_HELD = 4
"""Most operands that a thread keeps in registers from one sweep to the next."""


class Reductions:
    """Writes the kernels of a nest with reductions, and keeps them in `kernels`."""

    def __init__(self, name: str, nest: Nest, graph: Graph, plan: SimtPlan, dialect: Dialect) -> None:
        self.name, self.nest, self.graph, self.plan, self.dialect = name, nest, graph, plan, dialect
        self.memories = Memories(nest, graph)
        loops = list(enumerate(nest.loops))
        self.place = index_of("place", nest, [axis for axis, loop in loops if not loop.reduced], "/")
        self.i = index_of("i", nest, [axis for axis, loop in loops if loop.reduced], "/")
        self.team = team_for(self.place.size, self.i.size, rows=nest.lanes_are_reduced, plan=plan, dialect=dialect)
        self.kind = "int64" if is_wide(nest) and dialect.has_int64 else "int32"
        self.reductions = [node for sweep in nest.sweeps for node in sweep.reductions]
        self.kernels: list[Kernel] = []
        if self.team.parts > 1:
            self._in_parts()
        else:
            self._at_once()

    @property
    def parts_size(self) -> int:
        """Number of partial results that must be stored between kernels. 0 if one kernel does everything."""
        return self.place.size * self.team.parts * len(self.reductions) if self.team.parts > 1 else 0

    # --- one kernel ---------------------------------------------------------------------------------------------

    def _at_once(self) -> None:
        code = self._begin(self.name, 1)
        body = Elements(code, self.memories, (self.place, self.i))
        self._declare_held(code)
        body.compute(self.nest.before)
        for number, sweep in enumerate(self.nest.sweeps):
            self._sweep(body, number, sweep, "member", str(self.i.size))
            reduced(code, self.team, [(node.function, f"{node.name}_all") for node in sweep.reductions])
            self._after(body, sweep)
        self._store_places(body)

    # --- several kernels ----------------------------------------------------------------------------------------

    def _in_parts(self) -> None:
        sweeps = self.nest.sweeps
        length = -(-self.i.size // self.team.parts)
        for number, sweep in enumerate(sweeps):
            last = number == len(sweeps) - 1
            code = self._begin(self.name if last and not sweep.reductions else f"{self.name}_{number + 1}", length)
            body = Elements(code, self.memories, (self.place, self.i))
            body.compute(self.nest.before)
            for before in sweeps[:number]:
                self._from_parts(body, before)
            code.let("begin", self.kind, f"part * {length}")
            code.let("end", self.kind, f"{self._smaller(f'begin + {length}', str(self.i.size))}")
            self._sweep(body, number, sweep, "begin + member", "end")
            reduced(code, self.team, [(node.function, f"{node.name}_all") for node in sweep.reductions])
            for node in sweep.reductions:
                with code.when(all_of(self._inside, "member == 0" if self.team.size > 1 else "")):
                    code.store(PARTIAL, self._part(node, "part"), Value(f"{node.name}_all", "float32"))
            if last and not sweep.reductions:
                self._store_places(body, "part == 0")
        if sweeps[-1].reductions:
            code = self._begin(self.name, 1)
            body = Elements(code, self.memories, (self.place, self.i))
            body.compute(self.nest.before)
            for sweep in sweeps:
                self._from_parts(body, sweep)
            self._store_places(body)

    def _smaller(self, one: str, other: str) -> str:
        return self.dialect.select(f"{one} < {other}", one, other)

    def _from_parts(self, body: Elements, sweep: Sweep) -> None:
        """Write the statements that combine the partial results of a sweep, and compute the values that follow from
        it."""
        code = body.code
        for node in sweep.reductions:
            name = code.var(f"{node.name}_all", "float32", start(self.dialect, node.function))
            with code.loop("k", self.team.parts, "member", self.team.size):
                partial = code.load(PARTIAL, self._part(node, "k")).text
                code.assign(name, combined(code, node.function, name, partial))
        reduced(code, self.team, [(node.function, f"{node.name}_all") for node in sweep.reductions])
        self._after(body, sweep)

    def _part(self, node: Node, part: str) -> str:
        first = self.reductions.index(node) * self.place.size * self.team.parts
        return f"{first} + place * {self.team.parts} + {part}"

    # --- parts of a kernel --------------------------------------------------------------------------------------

    def _begin(self, name: str, length: int) -> Code:
        team = self.team
        parts = team.parts if length > 1 else 1
        blocks = -(-self.place.size // team.places)
        said = self.nest.title
        kernel = Kernel(name, said, team.group, blocks * parts)
        code = Code(self.dialect, kernel)
        self.memories.declare(code)
        if team.parts > 1:
            code.parameter(PARTIAL, "float32", written=True)
        code.let("member", "int32", team.member)
        block = GROUP_INDEX if parts == 1 else f"{GROUP_INDEX} / {parts}"
        if parts > 1:
            code.let("part", "int32", f"{GROUP_INDEX} % {parts}")
        block = self.dialect.cast(self.kind, f"({block})") if self.kind == "int64" else block
        place = team.place if team.places > 1 else ""
        own = f"{block} * {team.places} + {place}" if place else block
        if self.place.size % team.places:
            code.let("own", self.kind, own)
            # threads beyond the last place do its work again and store nothing, so that all reach every barrier
            code.let("place", self.kind, self._smaller("own", str(self.place.size - 1)))
        else:
            code.let("place", self.kind, own)
        self.kernels.append(kernel)
        return code

    @property
    def _inside(self) -> str:
        return f"own < {self.place.size}" if self.place.size % self.team.places else ""

    def _after(self, body: Elements, sweep: Sweep) -> None:
        for node in sweep.reductions:
            body.values[node.name] = Value(f"{node.name}_all", "float32")
        body.compute(sweep.after)

    def _store_places(self, body: Elements, condition: str = "") -> None:
        nodes = [*self.nest.before, *(node for sweep in self.nest.sweeps for node in (*sweep.reductions, *sweep.after))]
        body.store(nodes, all_of(self._inside, "member == 0" if self.team.size > 1 else "", condition))

    # --- sweeps -------------------------------------------------------------------------------------------------

    @property
    def _steps(self) -> int:
        """Number of elements of a place that one thread processes if one kernel does all sweeps."""
        return -(-self.i.size // self.team.size)

    @property
    def _holds(self) -> bool:
        """Whether threads keep their elements in registers from one sweep to the next."""
        return self.team.parts == 1 and len(self.nest.sweeps) > 1 and self._steps <= self.plan.held

    def _held_buffers(self) -> list[Buffer]:
        """Return the operands to keep in registers: those that several sweeps read for each element."""
        if not self._holds:
            return []
        count: dict[str, int] = {}
        for number in range(len(self.nest.sweeps)):
            sources = {s for node in elements_needed(self.nest, number) for s in node.sources}
            sources |= {s for node in self.nest.sweeps[number].reductions for s in node.sources}
            for name in sources:
                count[name] = count.get(name, 0) + 1
        own = [b for b in self.nest.buffers if b.name not in self.nest.outputs and b.dtype == "float32"]
        several = [b for b in own if count.get(b.name, 0) > 1 and self.i.moves(b.steps) and self.place.moves(b.steps)]
        return several[:MOST_HELD]

    def _declare_held(self, code: Code) -> None:
        self._arrays = {buffer.name for buffer in self._held_buffers()}
        self._filled: set[str] = set()
        for name in sorted(self._arrays):
            code.array("float32", f"{name}_held", self._steps)

    def _sweep(self, body: Elements, number: int, sweep: Sweep, begin: str, end: str) -> None:
        code, team = body.code, self.team
        for node in sweep.reductions:
            code.var(f"{node.name}_all", "float32", start(self.dialect, node.function))
        if not elements_needed(self.nest, number) and not sweep.reductions:
            return
        sums = [node for node in sweep.reductions if node.function == "sum"]
        length = self.i.size if team.parts == 1 else -(-self.i.size // team.parts)
        if getattr(self, "_arrays", None):
            with code.loop("k", self._steps, unroll=True):
                code.let("i", self.kind, f"member + k * {team.size}" if team.size > 1 else "k")
                with code.when(f"i < {self.i.size}" if self.i.size % team.size else ""):
                    self._element(body.inside(), number, sweep, {}, held=True)
            self._filled |= self._arrays
        elif sums and -(-length // team.size) > 2 * PIECE:
            with code.loop("piece", end, begin, team.size * PIECE, kind=self.kind):
                parts = {node.name: code.var(f"{node.name}_part", "float32", "0.0f") for node in sums}
                code.let("stop", self.kind, self._smaller(f"piece + {team.size * PIECE}", end))
                with code.loop("i", "stop", "piece", team.size, kind=self.kind):
                    self._element(body.inside(), number, sweep, parts)
                for node in sums:
                    code.assign(f"{node.name}_all", f"{node.name}_all + {parts[node.name]}")
        else:
            with code.loop("i", end, begin, team.size, kind=self.kind):
                self._element(body.inside(), number, sweep, {})

    def _element(
        self, body: Elements, number: int, sweep: Sweep, targets: dict[str, str], *, held: bool = False
    ) -> None:
        if held:
            body.reader = lambda buffer: self._from_register(body, buffer)
        own = {node.name for node in sweep.elements}
        nodes = elements_needed(self.nest, number)
        body.compute(nodes)
        body.store([node for node in nodes if node.name in own], self._inside)
        for node in sweep.reductions:
            target = targets.get(node.name, f"{node.name}_all")
            value = body.code.converted(body.read(node.sources[0]), "float32")
            body.code.assign(target, combined(body.code, node.function, target, value))

    def _from_register(self, body: Elements, buffer: Buffer) -> Value | None:
        """Return the value of an operand that the thread keeps in a register, or None if it is not kept. The first use
        loads the register."""
        if buffer.name not in self._arrays:
            return None
        register = f"{buffer.name}_held[k]"
        if buffer.name not in self._filled:
            value = body.code.load(self.memories.name(buffer.base), body.address(buffer))
            body.code.assign(register, value.text)
        return Value(register, "float32")
