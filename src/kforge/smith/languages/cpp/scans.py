"""Writes a nest with scans in C++, in one pass over the data.

- row kernel: the contiguous axis is scanned. Eight elements are scanned in a vector register, in three steps.
- column kernel: the contiguous axis is not scanned. Each column has its own running value.

Sums and products run in double precision, as torch's do.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import elements_needed, maps_needed
from kforge.smith.ir.graph import ScanMode
from kforge.smith.languages.cpp.functions import REDUCTIONS
from kforge.smith.languages.cpp.nests import NestWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kforge.smith.fusion.loops import Nest
    from kforge.smith.ir.graph import Graph, Node
    from kforge.smith.languages.cpp.plan import CppPlan

LANES = 8
"""Number of elements of a row that one vector register scans, as doubles or as floats."""
BLOCK = 64
"""Number of elements of a block. Maps and scans alternate block by block. It is the number of one-byte elements (the
narrowest ones) that fill a vector register."""


def emit(name: str, nest: Nest, graph: Graph, plan: CppPlan) -> str:
    """Return the C++ source of the kernel."""
    return _ScanWriter(name, nest, graph, plan).text()


def helpers_of(nest: Nest, plan: CppPlan) -> list[str]:
    """Return the names of the helper functions that scan a vector register, one for each scan of the nest. Empty if the
    nest scans element by element."""
    across = nest.scans if nest.lanes_are_reduced and plan.scanned else ()
    return [_helper_name(node.function, node.arguments) for node in across]


def texts(names: Iterable[str]) -> str:
    """Return the C++ definitions of the named helper functions."""
    wanted, modes = set(names), [ScanMode(*each) for each in itertools.product((False, True), repeat=2)]
    found = {_helper_name(function, mode): (function, mode) for function in REDUCTIONS for mode in modes}
    return "".join(f"\n{_in_register(*given)}\n" for name, given in found.items() if name in wanted)


def _kind(function: str) -> str:
    return "double" if function in ("sum", "prod") else "float"


def _helper_name(function: str, mode: ScanMode) -> str:
    words = ["scanned", function, *["backwards"] * mode.backwards, *["without_itself"] * mode.exclusive]
    return "_".join(words)


def _in_register(function: str, mode: ScanMode) -> str:
    """Return the C++ source of a function that scans a block of elements, and continues from the value before the
    block."""
    kind, start = _kind(function), REDUCTIONS[function].start
    # on vectors, the operator ?: chooses lane by lane
    joined = {"max": "{0} > {1} ? {0} : {1}", "min": "{0} < {1} ? {0} : {1}"}.get(
        function, REDUCTIONS[function].combine
    )

    def shifted(by: int) -> str:
        """Return an expression for the vector shifted by some lanes. The free lanes get the neutral value."""
        sources = [lane + by if mode.backwards else lane - by for lane in range(LANES)]
        lanes = ", ".join(str(LANES + each) if 0 <= each < LANES else "0" for each in sources)
        return f"__builtin_shufflevector(nothing, v, {lanes})"

    steps = [f"        v = {joined.format(shifted(by), 'v')};" for by in (1, 2, 4)]
    if mode.exclusive:
        steps.append(f"        v = {shifted(1)};")
    last = 0 if mode.backwards else LANES - 1
    steps.insert(3, f"        const {kind} total = v[{last}];")
    fill = ", ".join([f"{start}"] * LANES)
    return "\n".join([
        f"static inline void {_helper_name(function, mode)}(float* block, {kind}& so_far) {{",
        f"    typedef float Values __attribute__((vector_size({4 * LANES})));",
        f"    typedef {kind} Wide __attribute__((vector_size({LANES} * sizeof({kind}))));",
        f"    const Wide nothing = {{{fill}}};",
        f"    for (int at = {BLOCK - LANES}; at >= 0; at -= {LANES}) {{"
        if mode.backwards
        else f"    for (int at = 0; at < {BLOCK}; at += {LANES}) {{",
        "        Values values;",
        "        std::memcpy(&values, block + at, sizeof values);",
        "        Wide v = __builtin_convertvector(values, Wide);",
        f"        const Wide before = {{{', '.join(['so_far'] * LANES)}}};",
        *steps,
        f"        v = {joined.format('before', 'v')};",
        "        values = __builtin_convertvector(v, Values);",
        "        std::memcpy(block + at, &values, sizeof values);",
        f"        so_far = {joined.format('so_far', 'total')};",
        "    }",
        "}",
    ])  # fmt: skip


class _ScanWriter(NestWriter):
    """Writes the C++ function of a nest with scans."""

    def __init__(self, name: str, nest: Nest, graph: Graph, plan: CppPlan) -> None:
        super().__init__(name, nest, graph, plan)
        self.whole = False  # a scan of a single row is written as a row kernel
        self.backwards = nest.scans[0].arguments.backwards

    def _row_pass(self) -> None:
        size = self._inner_size()
        index, full = self.index[self.inner[0][0]], size // BLOCK * BLOCK if self.plan.scanned else 0
        for node in self.nest.before:
            self._value(node)
        for node in self.nest.scans:
            self.say(f"{_kind(node.function)} {node.name}_so_far = {REDUCTIONS[node.function].start};")
        if full:
            down = f"start = {size - BLOCK}; start >= {size - full}; start -= {BLOCK}"
            up = f"start = 0; start < {full}; start += {BLOCK}"
            self._block(f"for (int64_t {down if self.backwards else up})", lambda: self._neighbours(index))
        if full < size:
            down = f"{index} = {size - full - 1}; {index} >= 0; --{index}"
            up = f"{index} = {full}; {index} < {size}; ++{index}"
            self._block(f"for (int64_t {down if self.backwards else up})", lambda: self._one_by_one("{}_so_far"))
        self._store_rows(self.nest.before)

    def _neighbours(self, index: str) -> None:
        for node in self.nest.scans:
            self.say(f"float {node.name}_block[{BLOCK}];")

        def operands() -> None:
            self.say(f"const int64_t {index} = start + lane;")
            local: dict[str, str] = {}
            for node in maps_needed(self.nest, [each for scan in self.nest.scans for each in scan.sources]):
                self._element(node, local)
            for node in self.nest.scans:
                self.say(f"{node.name}_block[lane] = {self._operand(node.inputs[0], local)};")

        def results() -> None:
            self.say(f"const int64_t {index} = start + lane;")
            local = {node.name: f"{node.name}_block[lane]" for node in self.nest.scans}
            for node in maps_needed(self.nest, self.nest.outputs):
                self._element(node, local)
            for node in self.nest.sweeps[0].elements:
                self._store(node, local)

        self._lanes(str(BLOCK), operands)
        for node in self.nest.scans:
            self.say(f"{_helper_name(node.function, node.arguments)}({node.name}_block, {node.name}_so_far);")
        self._lanes(str(BLOCK), results)

    def _column_pass(self) -> None:
        assert self.lane is not None
        size = self.lane[1].size
        tile = min(self._tile(), size)
        index, length = self.index[self.inner[0][0]], self._inner_size()

        def tiles() -> None:
            self.say(f"const int64_t lanes = std::min<int64_t>({tile}, {size} - start);")
            self._lane_values(self.nest.before, tile)
            for node in self.nest.scans:
                self.say(f"{_kind(node.function)} {node.name}_so_far[{tile}];")
                self.say(f"std::fill_n({node.name}_so_far, {tile}, {REDUCTIONS[node.function].start});")
            down, up = f"{index} = {length - 1}; {index} >= 0; --{index}", f"{index} = 0; {index} < {length}; ++{index}"
            self._block(
                f"for (int64_t {down if self.backwards else up})",
                lambda: self._lanes("lanes", lambda: self._one_by_one("{}_so_far[lane]")),
            )
            self._store_lanes(self.nest.before)

        self._block(f"for (int64_t start = 0; start < {size}; start += {tile})", tiles)

    def _one_by_one(self, so_far: str) -> None:
        """Write a scan of one element after the other. `so_far` is a pattern for the name of the variable with the
        running value."""
        local: dict[str, str] = {}
        for node in elements_needed(self.nest, 0):
            if node.kind != "scan":
                self._element(node, local)
            else:
                running, combine = so_far.format(node.name), REDUCTIONS[node.function].combine
                combined = f"{running} = {combine.format(running, self._operand(node.inputs[0], local))};"
                local[node.name] = f"{node.name}_value"
                value = f"const float {local[node.name]} = static_cast<float>({running});"
                for line in (value, combined) if node.arguments.exclusive else (combined, value):
                    self.say(line)
            self._store(node, local)

    def _element(self, node: Node, local: dict[str, str]) -> None:
        value = self._expression(node, local)
        local[node.name] = f"{node.name}_value"
        self.say(f"const {self._type(node)} {local[node.name]} = {value};")

    def _store(self, node: Node, local: dict[str, str]) -> None:
        if node.name in self.nest.outputs:
            self.say(f"{self._buffer(node.name)}[{self._at(self.nest.buffer(node.name))}] = {local[node.name]};")

    def _lanes(self, count: str, body: Callable[[], None]) -> None:
        self.say("#pragma omp simd")
        self._block(f"for (int64_t lane = 0; lane < {count}; ++lane)", body)
