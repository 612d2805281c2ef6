"""A nest of loops said in C++: one function a kernel, with named loops and buffers.

row kernel      neighbours in memory are reduced: a pass of independent places, and inside it sweeps over a row
column kernel   neighbours stand side by side: a tile of them at a time, each with sums of its own
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.functions import MAPS, REDUCTIONS
from kforge.smith.loops import elements_needed, work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kforge.smith.graph import Graph, Node, Operand
    from kforge.smith.languages.cpp.plan import CppPlan
    from kforge.smith.loops import Buffer, Loop, Nest

TYPES = {"float32": "float", "bool": "bool", "uint8": "uint8_t", "int32": "int32_t", "int64": "int64_t"}
IN_MEMORY = {**TYPES, "bool": "uint8_t"}
"""Truth values are read as bytes: of bool, GCC does not vectorize choices."""
WORTH_A_THREAD = 1 << 15
"""Operations below which starting threads takes longer than they save."""
LONG = 4096
"""Elements that are added up in single precision before a double takes the sum over."""
SHORT = 16
"""Rows up to this length are worked on side by side, each in a lane of its own."""
PARTS = 64
"""Pieces that a reduction of everything is cut into, so that threads share it."""
LARGE_BYTES = 1 << 20
"""An output that is worth a hint to the system about its memory, which takes a microsecond."""
KEPT_BYTES = 1 << 19
INDENT = "    "
OUTER_NAMES = ("row", "block", "plane", "volume")
INNER_NAMES = ("i", "j", "k", "l")


def _large(nest: Nest, graph: Graph) -> list[tuple[Buffer, int]]:
    """What is written into much memory, and its bytes."""
    written = [(each, graph[each.base]) for each in nest.memories if each.name in nest.outputs]
    sizes = [(each, base.size * (4 if base.dtype == "float32" else 1)) for each, base in written]
    return [(each, size) for each, size in sizes if size >= LARGE_BYTES]


def helpers_of(nest: Nest, graph: Graph) -> list[str]:
    def helper(node: Node) -> str:
        return MAPS[node.function].helper if node.kind == "map" else REDUCTIONS[node.function].helper

    return [*(helper(node) for node in _nodes(nest)), *["large_pages"] * bool(_large(nest, graph))]


def _nodes(nest: Nest) -> Iterator[Node]:
    yield from nest.before
    for sweep in nest.sweeps:
        yield from (*sweep.elements, *sweep.reductions, *sweep.after)


def emit(name: str, nest: Nest, graph: Graph, plan: CppPlan) -> str:
    """The kernel's source text."""
    return NestWriter(name, nest, graph, plan).text()


class NestWriter:
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
        if self.whole:  # threads share the sweeps, so nothing can be kept in memory of their own
            self.kept = {name: place for name, place in self.kept.items() if place}
            self.nest = replace(nest, kept=tuple(self.kept))

    # --- text ---------------------------------------------------------------------------------------------------

    def text(self) -> str:
        parameters = ", ".join(self.parameter(buffer) for buffer in self.nest.memories)
        self.say(f"// {self._title()}")
        self.say(f'extern "C" void {self.name}({parameters}) {{')
        with_threads = work(self.nest) >= WORTH_A_THREAD * self.plan.threads
        self.depth += 1
        for hint in self.hints():
            self.say(hint)
        if self.whole:
            self._whole(with_threads)
        elif self.maps_only:
            self._maps(with_threads)
        else:
            self._passes(with_threads)
        self.depth -= 1
        self.say("}")
        return "\n".join(self.lines) + "\n"

    def hints(self) -> list[str]:
        return [f"in_large_pages({self._buffer(each.name)}, {size});" for each, size in _large(self.nest, self.graph)]

    def statements(self, places: dict[int, str], given: dict[str, str]) -> str:
        """What maps do at one place, for a loop that somebody else writes.

        `places` says the index of every loop of the nest there, and `given` the values that need not be read.
        """
        self.index, self.lane = places, None
        self.sweep_body(0, {}, given=given)
        return "\n".join(self.lines)

    def say(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line if line else "")

    def _title(self) -> str:
        origins = list(dict.fromkeys(node.origin for node in _nodes(self.nest) if node.origin))
        sizes = " x ".join(str(loop.size) for loop in self.nest.loops) or "1"
        return f"{', '.join(origins)}: {sizes}"

    def parameter(self, buffer: Buffer) -> str:
        constant = "" if buffer.name in self.nest.outputs else "const "
        return f"{constant}{IN_MEMORY[buffer.dtype]}* __restrict__ {self._buffer(buffer.name)}"

    # --- shapes of kernels --------------------------------------------------------------------------------------

    def _maps(self, with_threads: bool) -> None:
        if not self.nest.loops:  # a single element
            self.sweep_body(0, {})
            return
        if not self.outer:
            threads = "parallel for simd" if with_threads else "simd"
            self.say(f"#pragma omp {threads}")
            self._for(*self.inner[0], lambda: self.sweep_body(0, {}))
            return
        if with_threads:
            self.say(f"#pragma omp parallel for{self._collapse(len(self.outer))}")
        self._nested(self.outer, lambda: self._vector_loop(self.inner[0], lambda: self.sweep_body(0, {})))

    def _vector_loop(self, loop: tuple[int, Loop], body: Callable[[], None]) -> None:
        self.say("#pragma omp simd")
        self._for(*loop, body)

    def _passes(self, with_threads: bool) -> None:
        tiled = self.lane is not None
        if self.side_by_side:
            *around, last = self.outer
            if with_threads:
                self.say(f"#pragma omp parallel for{'' if around else ' simd'}{self._collapse(len(around))}")
            pragma = ["#pragma omp simd"] if around or not with_threads else []
            self._nested(around, lambda: self._for(*last, self._row_pass, pragma))
            return
        if with_threads and (self.outer or tiled):
            self.say(f"#pragma omp parallel for{self._collapse(len(self.outer) + tiled)}")
        self._nested(self.outer, self._column_pass if tiled else self._row_pass)

    def _collapse(self, loops: int) -> str:
        return f" collapse({loops})" if loops > 1 else ""

    def _row_pass(self) -> None:
        for name, place in self.kept.items():
            if place == "":
                self.say(f"static thread_local std::vector<float> {name}_row({self._inner_size()});")
                self.say(f"float* __restrict__ kept_{name} = {name}_row.data();")
        for node in self.nest.before:
            self._value(node)
        for number, sweep in enumerate(self.nest.sweeps):
            self._row_sweep(number, sweep.reductions)
            for node in sweep.after:
                self._value(node)
            self._store_rows((*sweep.reductions, *sweep.after))
        self._store_rows(self.nest.before)

    def _row_sweep(self, number: int, reductions: tuple[Node, ...]) -> None:
        long = self._inner_size() > LONG
        for node in reductions:
            kind = "double" if long and node.function in ("sum", "prod") else "float"
            self.say(f"{kind} {node.name} = {REDUCTIONS[node.function].start};")
        *around, last = self.inner

        def vectorized() -> None:
            if not long:
                if not self.side_by_side:
                    self._simd(reductions, {})
                self._for(*last, lambda: self.sweep_body(number, {}, reductions))
                return
            parts = {node.name: f"{node.name}_part" for node in reductions}
            index, size = self.index[last[0]], last[1].size
            if size > LONG:
                self.say(f"for (int64_t start = 0; start < {size}; start += {LONG}) {{")
                self.depth += 1
                self.say(f"const int64_t end = std::min<int64_t>(start + {LONG}, {size});")
            for node in reductions:
                self.say(f"float {parts[node.name]} = {REDUCTIONS[node.function].start};")
            self._simd(reductions, parts)
            bounds = ("start", "end") if size > LONG else ("0", str(size))
            self.say(f"for (int64_t {index} = {bounds[0]}; {index} < {bounds[1]}; ++{index}) {{")
            self.depth += 1
            self.sweep_body(number, parts, reductions)
            self.depth -= 1
            self.say("}")
            for node in reductions:
                combined = REDUCTIONS[node.function].combine.format(node.name, parts[node.name])
                self.say(f"{node.name} = {combined};")
            if size > LONG:
                self.depth -= 1
                self.say("}")

        self._nested(around, vectorized)

    def _simd(self, reductions: tuple[Node, ...], parts: dict[str, str]) -> None:
        clauses = [
            f" reduction({REDUCTIONS[node.function].openmp} : {parts.get(node.name, node.name)})" for node in reductions
        ]
        self.say(f"#pragma omp simd{''.join(clauses)}")

    def _whole(self, with_threads: bool) -> None:
        """Everything is one row: every sweep is shared by all threads."""
        for node in self.nest.before:
            self._value(node)
        for number, sweep in enumerate(self.nest.sweeps):
            if sweep.reductions:
                self._shared_reduction(number, sweep.reductions, with_threads)
            else:
                self._shared_maps(number, with_threads)
            for node in sweep.after:
                self._value(node)
            self._store_rows((*sweep.reductions, *sweep.after))
        self._store_rows(self.nest.before)

    def _shared_maps(self, number: int, with_threads: bool) -> None:
        *around, last = self.inner
        if not around:
            self.say(f"#pragma omp {'parallel for simd' if with_threads else 'simd'}")
            self._for(*last, lambda: self.sweep_body(number, {}))
            return
        if with_threads:
            self.say(f"#pragma omp parallel for{self._collapse(len(around))}")
        self._nested(around, lambda: self._vector_loop(last, lambda: self.sweep_body(number, {})))

    def _shared_reduction(self, number: int, reductions: tuple[Node, ...], with_threads: bool) -> None:
        """Cut into parts, which are added up in their order: the same result every time."""
        (first_axis, first), *rest = self.inner
        parts = min(PARTS, first.size)
        for node in reductions:
            self.say(f"double {node.name}_parts[{parts}];")
        if with_threads:
            self.say("#pragma omp parallel for")
        self.say(f"for (int64_t part = 0; part < {parts}; ++part) {{")
        self.depth += 1
        index = self.index[first_axis]
        self.say(f"const int64_t begin = part * {first.size} / {parts}, end = (part + 1) * {first.size} / {parts};")
        names = {node.name: f"{node.name}_part" for node in reductions}
        for node in reductions:
            self.say(f"{'double' if rest else 'float'} {names[node.name]} = {REDUCTIONS[node.function].start};")
        if not rest:
            self._simd(reductions, names)
        self.say(f"for (int64_t {index} = begin; {index} < end; ++{index}) {{")
        self.depth += 1
        if rest:
            self._nested(rest[:-1], lambda: self._short_reduction(number, rest[-1], reductions, names))
        else:
            self.sweep_body(number, names, reductions)
        self.depth -= 1
        self.say("}")
        for node in reductions:
            self.say(f"{node.name}_parts[part] = {names[node.name]};")
        self.depth -= 1
        self.say("}")
        for node in reductions:
            reduction = REDUCTIONS[node.function]
            self.say(f"double {node.name} = {reduction.start};")
            combined = reduction.combine.format(node.name, f"{node.name}_parts[part]")
            self.say(f"for (int64_t part = 0; part < {parts}; ++part) {node.name} = {combined};")

    def _short_reduction(
        self, number: int, loop: tuple[int, Loop], reductions: tuple[Node, ...], totals: dict[str, str]
    ) -> None:
        """Over the innermost loop in single precision, then added to the totals."""
        names = {node.name: f"{node.name}_here" for node in reductions}
        for node in reductions:
            self.say(f"float {names[node.name]} = {REDUCTIONS[node.function].start};")
        self._simd(reductions, names)
        self._for(*loop, lambda: self.sweep_body(number, names, reductions))
        for node in reductions:
            combined = REDUCTIONS[node.function].combine.format(totals[node.name], names[node.name])
            self.say(f"{totals[node.name]} = {combined};")

    def _column_pass(self) -> None:
        assert self.lane is not None
        size = self.lane[1].size
        tile = min(self._tile(), size)
        self.say(f"for (int64_t start = 0; start < {size}; start += {tile}) {{")
        self.depth += 1
        self.say(f"const int64_t lanes = std::min<int64_t>({tile}, {size} - start);")
        for name, place in self.kept.items():
            if place == "":
                self.say(f"static thread_local std::vector<float> {name}_tile({self._inner_size() * tile});")
                self.say(f"float* __restrict__ kept_{name} = {name}_tile.data();")
        self._lane_values(self.nest.before, tile)
        for number, sweep in enumerate(self.nest.sweeps):
            for node in sweep.reductions:
                kind = "double" if self._inner_size() > LONG and node.function in ("sum", "prod") else "float"
                self.say(f"{kind} {node.name}[{tile}];")
                self.say(f"std::fill_n({node.name}, {tile}, {REDUCTIONS[node.function].start});")

            def body(number: int = number, reductions: tuple[Node, ...] = sweep.reductions) -> None:
                self.say("#pragma omp simd")
                self.say("for (int64_t lane = 0; lane < lanes; ++lane) {")
                self.depth += 1
                self.sweep_body(number, {node.name: f"{node.name}[lane]" for node in reductions}, reductions)
                self.depth -= 1
                self.say("}")

            self._nested(self.inner, body)
            self._lane_values(sweep.after, tile)
            self._store_lanes((*sweep.reductions, *sweep.after))
        self._store_lanes(self.nest.before)
        self.depth -= 1
        self.say("}")

    def _lane_values(self, nodes: tuple[Node, ...], tile: int) -> None:
        for node in nodes:
            self.say(f"{self._type(node)} {node.name}[{tile}];")
            self.say(f"for (int64_t lane = 0; lane < lanes; ++lane) {node.name}[lane] = {self._expression(node, {})};")

    def _store_lanes(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            if node.name in self.nest.outputs:
                place = f"{self._buffer(node.name)}[{self._at(self.nest.buffer(node.name))}]"
                self.say(f"for (int64_t lane = 0; lane < lanes; ++lane) {place} = {node.name}[lane];")

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
        return MAPS[node.function].c.format(*(self._operand(each, local) for each in node.inputs))

    def _operand(self, operand: Operand, local: dict[str, str]) -> str:
        if isinstance(operand, bool):
            return "true" if operand else "false"
        if isinstance(operand, int | float):
            return _number(float(operand))
        if operand in local:
            return local[operand]
        made_here = {node.name for node in _nodes(self.nest)}
        if operand in made_here:
            if self.lane is not None:
                return f"{operand}[lane]"
            return f"static_cast<float>({operand})" if self._is_wide(operand) else operand
        return f"{self._buffer(operand)}[{self._at(self.nest.buffer(operand))}]"

    def _is_wide(self, name: str) -> bool:
        """Whether a row's value is kept in double precision."""
        node = self.graph[name]
        if node.kind != "reduce":
            return False
        return self.whole or (self._inner_size() > LONG and node.function in ("sum", "prod"))

    # --- places -------------------------------------------------------------------------------------------------

    def _at(self, buffer: Buffer) -> str:
        """The index expression of a buffer at the present places of the loops that are open."""
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
        """What is written is not named as its node: that is the name of a value."""
        base = self.nest.buffer(name).base
        return f"{base}_out" if name in self.nest.outputs else base

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
        """In an output that is written later, where there is one for each; else in memory of the thread's own."""
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
        """Whether rows are too short to be vectorized, each for itself, and there are many."""
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

    def _nested(self, loops: list[tuple[int, Loop]], body: Callable[[], None]) -> None:
        if not loops:
            body()
            return
        (axis, loop), *rest = loops
        self._for(axis, loop, lambda: self._nested(rest, body))


def _number(value: float) -> str:
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    if math.isnan(value):
        return "NAN"
    text = f"{value:.9g}"
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"
