"""Writes a nest of loops in C++, as one function per kernel.

- row kernel: the contiguous axis is reduced. An outer loop goes over places, and inside it sweeps go over a row.
- column kernel: the contiguous axis is not reduced. A tile of columns is processed at a time, with one sum per column.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import cost, elements_needed, work
from kforge.smith.languages.cpp.functions import REDUCTIONS
from kforge.smith.languages.cpp.writer import LONG_COLUMN, LONG_ROW, KernelWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.smith.fusion.loops import Loop, Nest
    from kforge.smith.ir.graph import Graph, Node
    from kforge.smith.languages.cpp.plan import CppPlan

WORTH_A_THREAD = 1 << 15
"""Number of operations of a kernel below which starting threads costs more than it saves."""
PARTS = 64
"""Number of parts into which a reduction of a whole tensor is cut, so that threads can share it."""
MOST_WORK = 12
"""Most operations per element for which a row has several partial sums. With more operations per element, the chain of
additions no longer limits the speed."""
LANE_SUMS = 64
"""Most elements that one of several partial sums adds up in single precision."""
PIECE = 32
"""Number of rows that a column kernel adds up before it adds them to the column's total. Long sums are more exact this
way."""


def emit(name: str, nest: Nest, graph: Graph, plan: CppPlan) -> str:
    """Return the C++ source of the kernel."""
    return NestWriter(name, nest, graph, plan).text()


class NestWriter(KernelWriter):
    """Writes the C++ function of a nest of maps and reductions."""

    def text(self) -> str:
        parameters = ", ".join(self.parameter(buffer) for buffer in self.nest.memories)
        self.say(f"// {self.nest.title}")
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
        *around, last = self.inner
        # of several reduced loops, the innermost one has a partial sum, which is then added to the row's sum
        long = self._inner_size() > LONG_ROW or (bool(around) and not self.side_by_side)
        for node in reductions:
            kind = "double" if long and node.function in ("sum", "prod") else "float"
            self.say(f"{kind} {node.name} = {REDUCTIONS[node.function].start};")
        in_lanes = bool(reductions) and self._sums_would_wait(number, last[1].size)

        def vectorized() -> None:
            if long or in_lanes:
                longest = LANE_SUMS * self.plan.lanes if in_lanes else LONG_ROW
                self._pieces(
                    last, longest, lambda begin, end: self._piece(number, last[0], (begin, end), reductions, in_lanes)
                )
                return
            if not self.side_by_side:
                self._simd(reductions, {})
            self._for(*last, lambda: self.sweep_body(number, {}, reductions))

        self._nested(around, vectorized)

    def _sums_would_wait(self, number: int, size: int) -> bool:
        """Return whether a row needs several partial sums, because each addition would wait for the one before: little
        work per element, and a row length that is a multiple of the lanes."""
        lanes, elements = self.plan.lanes, elements_needed(self.nest, number)
        if not lanes or self.side_by_side or size < 4 * lanes or size % lanes:
            return False
        return sum(map(cost, elements)) <= MOST_WORK and not any(node.name in self.kept for node in elements)

    def _pieces(self, loop: tuple[int, Loop], longest: int, write: Callable[[str, str], None]) -> None:
        """Write a loop in pieces of `longest` elements. `write` gets the first index and the end of a piece. A short
        loop is one piece."""
        size = loop[1].size
        if size <= longest:
            write("0", str(size))
            return

        def piece() -> None:
            self.say(f"const int64_t end = std::min<int64_t>(start + {longest}, {size});")
            write("start", "end")

        self._block(f"for (int64_t start = 0; start < {size}; start += {longest})", piece)

    def _piece(
        self, number: int, axis: int, bounds: tuple[str, str], reductions: tuple[Node, ...], in_lanes: bool
    ) -> None:
        """Write the loop over one piece. It is summed in single precision, in one variable or in lanes, and then added
        to the row's sum."""
        (begin, end), index, lanes = bounds, self.index[axis], self.plan.lanes
        parts = {node.name: f"{node.name}_part" for node in reductions}

        def lane() -> None:
            self.say(f"const int64_t {index} = first + lane;")
            self.sweep_body(number, parts, reductions)

        def step() -> None:
            self.say("#pragma omp simd")
            self._block(f"for (int64_t lane = 0; lane < {lanes}; ++lane)", lane)

        if in_lanes:
            for node in reductions:
                self._lane_array(f"float {parts[node.name]}", node, lanes)
                parts[node.name] += "[lane]"
            self._block(f"for (int64_t first = {begin}; first < {end}; first += {lanes})", step)
        else:
            for node in reductions:
                self.say(f"float {parts[node.name]} = {REDUCTIONS[node.function].start};")
            self._simd(reductions, parts)
            head = f"for (int64_t {index} = {begin}; {index} < {end}; ++{index})"
            self._block(head, lambda: self.sweep_body(number, parts, reductions))
        over = f"for (int64_t lane = 0; lane < {lanes}; ++lane) " if in_lanes else ""
        for node in reductions:
            combined = REDUCTIONS[node.function].combine.format(node.name, parts[node.name])
            self.say(f"{over}{node.name} = {combined};")

    def _simd(self, reductions: tuple[Node, ...], parts: dict[str, str]) -> None:
        clauses = [
            f" reduction({REDUCTIONS[node.function].openmp} : {parts.get(node.name, node.name)})" for node in reductions
        ]
        self.say(f"#pragma omp simd{''.join(clauses)}")

    def _whole(self, with_threads: bool) -> None:
        """Write a nest that has only one place (for example the sum of a whole tensor): all threads share each
        sweep."""
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
        """Write a reduction that threads share in parts. The parts are combined in a fixed order, so that the result is
        the same in every run."""
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
            self.say(f"double {names[node.name]} = {REDUCTIONS[node.function].start};")
        if rest:
            head = f"for (int64_t {index} = begin; {index} < end; ++{index})"
            *around, (axis, loop) = rest
            bounds = "0", str(loop.size)
            inner = partial(self._short_reduction, number, self.index[axis], bounds, reductions, names)
            self._block(head, lambda: self._nested(around, inner))
        else:

            def piece() -> None:
                self.say(f"const int64_t stop = std::min<int64_t>(start + {LONG_ROW}, end);")
                self._short_reduction(number, index, ("start", "stop"), reductions, names)

            self._block(f"for (int64_t start = begin; start < end; start += {LONG_ROW})", piece)
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
        self, number: int, index: str, bounds: tuple[str, str], reductions: tuple[Node, ...], totals: dict[str, str]
    ) -> None:
        """Write a reduction over a part of the innermost loop in single precision, and add its result to the
        totals."""
        names = {node.name: f"{node.name}_here" for node in reductions}
        for node in reductions:
            self.say(f"float {names[node.name]} = {REDUCTIONS[node.function].start};")
        self._simd(reductions, names)
        head = f"for (int64_t {index} = {bounds[0]}; {index} < {bounds[1]}; ++{index})"
        self._block(head, lambda: self.sweep_body(number, names, reductions))
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
            self._column_sweep(number, sweep.reductions, tile)
            self._lane_values(sweep.after, tile)
            self._store_lanes((*sweep.reductions, *sweep.after))
        self._store_lanes(self.nest.before)
        self.depth -= 1
        self.say("}")

    def _column_sweep(self, number: int, reductions: tuple[Node, ...], tile: int) -> None:
        for node in reductions:
            kind = "double" if self._inner_size() > LONG_COLUMN and node.function in ("sum", "prod") else "float"
            self._lane_array(f"{kind} {node.name}", node, tile)
        in_pieces = [node for node in reductions if node.function == "sum" and self._inner_size() > 2 * PIECE]
        targets = {node.name: f"{node.name}[lane]" for node in reductions}
        targets |= {node.name: f"{node.name}_part[lane]" for node in in_pieces}
        *around, (axis, loop) = self.inner

        def over_lanes() -> None:
            self.say("#pragma omp simd")
            self._block(
                "for (int64_t lane = 0; lane < lanes; ++lane)", lambda: self.sweep_body(number, targets, reductions)
            )

        def piece() -> None:
            for node in in_pieces:
                self._lane_array(f"float {node.name}_part", node, tile)
            index = self.index[axis]
            end = f"std::min<int64_t>(piece + {PIECE}, {loop.size})" if loop.size > PIECE else str(loop.size)
            begin = "piece" if loop.size > PIECE else "0"
            self.say(f"const int64_t end = {end};")
            self._block(f"for (int64_t {index} = {begin}; {index} < end; ++{index})", over_lanes)
            for node in in_pieces:
                self.say(f"for (int64_t lane = 0; lane < lanes; ++lane) {node.name}[lane] += {node.name}_part[lane];")

        def last() -> None:
            if not in_pieces:
                self._for(axis, loop, over_lanes)
            elif loop.size > PIECE:
                self._block(f"for (int64_t piece = 0; piece < {loop.size}; piece += {PIECE})", piece)
            else:
                self._block("", piece)

        self._nested(around, last)

    def _lane_array(self, declared: str, node: Node, tile: int) -> None:
        """Write an array that holds the initial value of a reduction for each lane."""
        self.say(f"{declared}[{tile}];")
        self.say(f"std::fill_n({declared.split()[1]}, {tile}, {REDUCTIONS[node.function].start});")

    def _lane_values(self, nodes: tuple[Node, ...], tile: int) -> None:
        for node in nodes:
            self.say(f"{self._type(node)} {node.name}[{tile}];")
            self.say(f"for (int64_t lane = 0; lane < lanes; ++lane) {node.name}[lane] = {self._expression(node, {})};")

    def _store_lanes(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            if node.name in self.nest.outputs:
                place = f"{self._buffer(node.name)}[{self._at(self.nest.buffer(node.name))}]"
                self.say(f"for (int64_t lane = 0; lane < lanes; ++lane) {place} = {node.name}[lane];")
