"""The base class of C++ writers: loop indices, addresses of elements, and the statements that compute each element."""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import elements_needed
from kforge.smith.languages.c_literals import float_literal
from kforge.smith.languages.cpp.functions import MAPS, REDUCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kforge.smith.fusion.loops import Buffer, Loop, Nest
    from kforge.smith.ir.graph import Graph, Node, Operand
    from kforge.smith.languages.cpp.plan import CppPlan

TYPES = {"float32": "float", "bool": "bool", "uint8": "uint8_t", "int32": "int32_t", "int64": "int64_t"}
IN_MEMORY = {**TYPES, "bool": "uint8_t"}
"""C++ types of elements in memory. Booleans are bytes there, because GCC does not vectorize selections that depend on
a bool."""
ELEMENT_BYTES = {"float32": 4, "bool": 1, "uint8": 1, "int32": 4, "int64": 8}
LONG_ROW, LONG_COLUMN = 512, 4096
"""Most elements of a row, and of a column, that are summed in single precision; a longer sum is continued in double
precision. Equal numbers lose most, since all additions round in the same direction: rows in pieces of 4096 were off by
more than the tolerance. Columns are summed in shorter pieces in any case."""
SHORT = 16
"""Rows of at most this many elements are vectorized across rows: each lane of a vector computes a row of its own."""
LARGE_BYTES = 1 << 20
"""Size of an output, in bytes, from which the kernel asks the system for large pages. The request takes a
microsecond."""
KEPT_BYTES = 1 << 19
"""Most bytes that the kept values of a tile of columns take. Tiles that would take more are halved, down to 16
columns."""
INDENT = "    "
OUTER_NAMES = ("row", "block", "plane", "volume")
INNER_NAMES = ("i", "j", "k", "l")


def large_outputs(nest: Nest, graph: Graph) -> list[tuple[Buffer, int]]:
    """Return the outputs that are new memory of at least `LARGE_BYTES`, each with its size in bytes."""
    read = {each.base for each in nest.buffers if each.name not in nest.outputs}
    fresh = (each for each in nest.memories if each.name in nest.outputs and each.base not in read)
    written = [(each, graph[each.base]) for each in fresh]
    sizes = [(each, base.size * ELEMENT_BYTES[base.dtype]) for each, base in written]
    return [(each, size) for each, size in sizes if size >= LARGE_BYTES]


def helpers_of(nest: Nest, graph: Graph) -> list[str]:
    """Return the names of the helper functions (`definitions.py`) that the kernel of a nest calls."""

    def helper(node: Node) -> str:
        return MAPS[node.function].helper if node.kind == "map" else REDUCTIONS[node.function].helper

    return [*(helper(node) for node in nest.nodes), *["large_pages"] * bool(large_outputs(nest, graph))]


class KernelWriter:
    """Writes the C++ text of one loop nest."""

    def __init__(self, name: str, nest: Nest, graph: Graph, plan: CppPlan) -> None:
        self.name = name
        self.plan = plan
        self.nest = nest
        self.graph = graph
        self.lines: list[str] = []
        self.depth = 0
        maps_only = not nest.scans and not any(sweep.reductions for sweep in nest.sweeps)
        loops = list(enumerate(nest.loops))
        self.column = not nest.lanes_are_reduced
        if maps_only:  # every loop is independent; the last one is vectorized
            self.outer, self.inner = loops[:-1], loops[-1:]
        else:
            self.outer = [(i, loop) for i, loop in loops if not loop.reduced]
            self.inner = [(i, loop) for i, loop in loops if loop.reduced]
        self.lane = self.outer.pop() if self.column else None
        names = OUTER_NAMES[: len(self.outer)] if len(self.outer) <= len(OUTER_NAMES) else ()
        self.index: dict[int, str] = {}
        for position, (axis, _) in enumerate(reversed(self.outer)):
            self.index[axis] = names[position] if names else f"o{position}"
        for position, (axis, _) in enumerate(reversed(self.inner)):
            self.index[axis] = INNER_NAMES[position] if position < len(INNER_NAMES) else f"i{position}"
        if self.lane is not None:
            self.index[self.lane[0]] = "lane"
        self.maps_only = maps_only
        self.whole = not maps_only and not self.outer and self.lane is None
        self.kept = self._places_of_kept()
        if self.whole:  # threads share the sweeps, so nothing can be kept in the memory of one thread
            self.kept = {name: place for name, place in self.kept.items() if place}
            self.nest = replace(nest, kept=tuple(self.kept))

    # --- lines ---------------------------------------------------------------------------------------------------

    def hints(self) -> list[str]:
        return [
            f"in_large_pages({self._buffer(each.name)}, {size});" for each, size in large_outputs(self.nest, self.graph)
        ]

    def statements(self, places: dict[int, str], given: dict[str, str]) -> str:
        """Return the statements that compute the maps for one element, for a loop that another writer writes.

        `places` has the index expression of each loop of the nest, by the loop's number. `given` has expressions for
        values that are already known and need not be read, by name.
        """
        self.index, self.lane = places, None
        self.sweep_body(0, {}, given=given)
        return "\n".join(self.lines)

    def say(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line if line else "")

    def parameter(self, buffer: Buffer) -> str:
        constant = "" if buffer.name in self.nest.outputs else "const "
        return f"{constant}{IN_MEMORY[buffer.dtype]}* __restrict__ {self._buffer(buffer.name)}"

    # --- statements ---------------------------------------------------------------------------------------------

    def sweep_body(
        self,
        number: int,
        targets: dict[str, str],
        reductions: tuple[Node, ...] = (),
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        own = {node.name for node in self.nest.sweeps[number].elements}
        local = dict(given)
        for node in elements_needed(self.nest, number):
            if node.name in self.kept and node.name not in own:
                local[node.name] = self._kept_at(node.name)
                self.say(f"const float {node.name}_value = {local[node.name]};")
                local[node.name] = f"{node.name}_value"
                continue
            local[node.name] = f"{node.name}_value"
            self.say(f"const {self._type(node)} {local[node.name]} = {self._expression(node, local)};")
            if node.name in own and node.name in self.kept:
                self.say(f"{self._kept_at(node.name)} = {local[node.name]};")
            if node.name in own and node.name in self.nest.outputs:
                self.say(f"{self._buffer(node.name)}[{self._at(self.nest.buffer(node.name))}] = {local[node.name]};")
        for node in reductions:
            target = targets.get(node.name, node.name)
            value = self._operand(node.inputs[0], local)
            self.say(f"{target} = {REDUCTIONS[node.function].combine.format(target, value)};")

    def _value(self, node: Node) -> None:
        self.say(f"const {self._type(node)} {node.name} = {self._expression(node, {})};")

    def _store_rows(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            if node.name in self.nest.outputs:
                self.say(f"{self._buffer(node.name)}[{self._at(self.nest.buffer(node.name))}] = {node.name};")

    def _expression(self, node: Node, local: dict[str, str]) -> str:
        return MAPS[node.function].expression.format(*(self._operand(each, local) for each in node.inputs))

    def _operand(self, operand: Operand, local: dict[str, str]) -> str:
        if isinstance(operand, bool):
            return "true" if operand else "false"
        if isinstance(operand, int | float):
            return float_literal(float(operand))
        if operand in local:
            return local[operand]
        made_here = {node.name for node in self.nest.nodes}
        if operand in made_here:
            if self.lane is not None:
                return f"{operand}[lane]"
            return f"static_cast<float>({operand})" if self._is_wide(operand) else operand
        return f"{self._buffer(operand)}[{self._at(self.nest.buffer(operand))}]"

    def _is_wide(self, name: str) -> bool:
        """Return whether the named value of a row is a variable in double precision."""
        node = self.graph[name]
        if node.kind != "reduce":
            return False
        return self.whole or (self._inner_size() > LONG_ROW and node.function in ("sum", "prod"))

    # --- places -------------------------------------------------------------------------------------------------

    def _at(self, buffer: Buffer) -> str:
        """Return the index of the buffer's element for the current values of the loop indices, as a C++ expression."""
        terms = []
        for axis, step in enumerate(buffer.steps):
            if step:
                index = self.index[axis]
                if self.lane is not None and axis == self.lane[0]:
                    index = "(start + lane)"
                terms.append(index if step == 1 else f"{index} * {step}")
        if buffer.offset:
            terms.append(str(buffer.offset))
        return " + ".join(terms) or "0"

    def _buffer(self, name: str) -> str:
        """Return the name of a buffer's parameter. An output's parameter ends in `_out`, because the node's own name is
        a variable."""
        buffer = self.nest.buffer(name)
        return f"{buffer.base}_out" if self.nest.is_overwritten(buffer) else buffer.base

    def _kept_at(self, name: str) -> str:
        place = self.kept[name]
        if place:
            return f"{self._buffer(place)}[{self._at(self.nest.buffer(place))}]"
        terms, step = [], 1
        if self.lane is not None:
            tile = min(self._tile(), self.lane[1].size)
            terms, step = ["lane"], tile
        for axis, loop in reversed(self.inner):
            terms.append(self.index[axis] if step == 1 else f"{self.index[axis]} * {step}")
            step *= loop.size
        return f"kept_{name}[{' + '.join(reversed(terms))}]"

    def _places_of_kept(self) -> dict[str, str]:
        """Return where each kept value is stored: the name of an output that is written only in the last sweep, or an
        empty string for memory of the thread."""
        full = {axis for axis, _ in (*self.outer, *self.inner)} | ({self.lane[0]} if self.lane else set())
        last_sweep = self.nest.sweeps[-1].elements
        free = [
            node.name for node in last_sweep
            if node.name in self.nest.outputs and node.dtype == "float32"
            and all(self.nest.buffer(node.name).steps[axis] for axis in full)
        ]  # fmt: skip
        places = {}
        for name in self.nest.kept:
            places[name] = free.pop() if free else ""
        return places

    def _tile(self) -> int:
        kept = sum(not place for place in self.kept.values())
        tile = self.plan.tile
        while kept and tile > 16 and tile * self._inner_size() * 4 * kept > KEPT_BYTES:
            tile //= 2
        return tile

    @property
    def side_by_side(self) -> bool:
        """Whether the nest has many rows that are too short to vectorize one by one, so that each lane computes a row
        of its own."""
        rows = self.lane is None and bool(self.outer) and not self.nest.scans and not self.maps_only
        plain = not any(place == "" for place in self.kept.values())
        return rows and plain and self._inner_size() <= SHORT < self.outer[-1][1].size

    def _inner_size(self) -> int:
        return math.prod(loop.size for _, loop in self.inner)

    def _type(self, node: Node) -> str:
        return TYPES[node.dtype]

    # --- loops --------------------------------------------------------------------------------------------------

    def _for(self, axis: int, loop: Loop, body: Callable[[], None], pragmas: Sequence[str] = ()) -> None:
        index = self.index[axis]
        for pragma in pragmas:
            self.say(pragma)
        self.say(f"for (int64_t {index} = 0; {index} < {loop.size}; ++{index}) {{")
        self.depth += 1
        body()
        self.depth -= 1
        self.say("}")

    def _block(self, head: str, body: Callable[[], None]) -> None:
        self.say(f"{head} {{".strip())
        self.depth += 1
        body()
        self.depth -= 1
        self.say("}")

    def _nested(self, loops: list[tuple[int, Loop]], body: Callable[[], None]) -> None:
        if not loops:
            body()
            return
        (axis, loop), *rest = loops
        self._for(axis, loop, lambda: self._nested(rest, body))
