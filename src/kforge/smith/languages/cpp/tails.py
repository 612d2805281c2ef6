"""Writes C++ kernels that hand over their results piece by piece, so that the maps that follow (the tail) run in the
same kernel."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import nest
from kforge.smith.ir.graph import contiguous
from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.cpp.writer import LARGE_BYTES, KernelWriter, helpers_of
from kforge.smith.languages.indices import summed, times

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Nest
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.cpp.plan import CppPlan


class TailWriter(ABC):
    """Base class of writers of kernels with a tail. A kernel hands over its results in pieces. A piece is part of one
    row; the tail gets its batch, row, first column, number of elements, and values."""

    def __init__(
        self,
        name: str,
        node: Node,
        sizes: tuple[int, int, int],
        bias: str,
        context: Context,
        plan: CppPlan,
        helpers: tuple[str, ...],
    ) -> None:
        self.name = name
        self.helpers = helpers
        self.node = node
        self.batches, self.rows, self.columns = sizes
        self.bias = bias
        self.context = context
        self.plan = plan
        self.graph = context.graph
        self.parameters: dict[str, str] = {}
        """The kernel's parameters as C++ declarations, each with the argument that the program's `forward` passes."""

    def write(self, tail: Region | None) -> WrittenKernel | None:
        """Return the kernel with this tail, or None if it cannot run this tail."""
        return self._plain() if tail is None else self._with_tail(tail)

    @abstractmethod
    def title(self) -> str: ...

    def before(self) -> str:
        """Return the C++ text that comes before the kernel's function."""
        return ""

    @abstractmethod
    def begun(self) -> str:
        """Return the C++ call that computes the result, without its last argument. The last argument is the tail, as a
        lambda."""

    def _plain(self) -> WrittenKernel:
        """Return the kernel without a tail: it adds the bias and stores the result."""
        begun, value, out = self.begun(), self._value(), f"{self.node.name}_out"
        self._add(f"float* __restrict__ {out}", self.node.name)
        batch = times("batch", self.rows * self.columns if self.batches > 1 else 0)
        row = times("row", self.columns if self.rows > 1 else 0)
        place = summed(batch, row, "column")
        size = 4 * self.node.size
        hints = [f"in_large_pages({out}, {size});"] if size >= LARGE_BYTES else []
        return self._kernel([*hints, begun], f"{out}[{place}] = {value};", ("large_pages",) * len(hints))

    def _with_tail(self, tail: Region) -> WrittenKernel | None:
        """Return the kernel with the tail. None if the tail does not visit the elements in the kernel's order, contains
        a scan, or does not read the kernel's result."""
        maps = nest(tail, self.graph)
        places = self._places(maps)
        flat = contiguous(tuple(loop.size for loop in maps.loops))
        own = [buffer for buffer in maps.buffers if buffer.base == self.node.name]
        if places is None or maps.scans or not own or any((each.steps, each.offset) != (flat, 0) for each in own):
            return None
        begun = self.begun()
        given = {buffer.name: f"{self.node.name}_value" for buffer in own}
        value = f"const float {self.node.name}_value = {self._value()};"
        writer = KernelWriter(self.name, maps, self.graph, self.plan)
        for buffer in maps.memories:
            if buffer not in own:
                self._add(writer.parameter(buffer), self.context.memory(buffer.base))
        body = writer.statements(places, given)
        return self._kernel([*writer.hints(), begun], f"{value}\n{body}", tuple(helpers_of(maps, self.graph)))

    def given(self, name: str, argument: str) -> str:
        """Add a tensor that the kernel reads to its parameters, and return the parameter's name."""
        self._add(f"const float* __restrict__ {name}", argument)
        return name

    def _add(self, parameter: str, argument: str) -> None:
        self.parameters[parameter] = argument

    @property
    @abstractmethod
    def bias_index(self) -> str:
        """The index along which the bias varies: `row` or `column`."""

    def _value(self) -> str:
        if not self.bias:
            return "product[i]"
        return f"product[i] + {self.given(self.bias, self.context.elements(self.bias))}[{self.bias_index}]"

    def _kernel(self, begun: list[str], body: str, helpers: tuple[str, ...]) -> WrittenKernel:
        piece = "int64_t batch, int64_t row, int64_t first, int64_t count, const float* __restrict__ product"
        before_tail = "\n    ".join(begun)
        text = f"""\
// {self.title()}
{self.before()}extern "C" void {self.name}({", ".join(self.parameters)}) {{
    {before_tail}[&]({piece}) {{
        #pragma omp simd
        for (int64_t i = 0; i < count; ++i) {{
            const int64_t column = first + i;
{textwrap.indent(body, " " * 12)}
        }}
    }});
}}
"""
        arguments = ", ".join(self.parameters.values())
        return WrittenKernel(self.name, text, (f"library.{self.name}({arguments})",), (*helpers, *self.helpers))

    def _places(self, maps: Nest) -> dict[int, str] | None:
        """Return the index expression of each loop of the tail, made of batch, row and column. None if the loops are
        not these three, or neighbours of them merged into one."""
        axes = [("batch", self.batches), ("row", self.rows), ("column", self.columns)]
        left = [(index, size) for index, size in axes if size != 1]
        places = {}
        for axis, loop in enumerate(maps.loops):
            size, terms = 1, []
            while left and size < loop.size:
                terms.append(left.pop(0))
                size *= terms[-1][1]
            if size != loop.size:
                return None
            steps = contiguous(tuple(each for _, each in terms))
            sized = zip(terms, steps, strict=True)
            text = summed(*(times(index, step if each > 1 else 0) for (index, each), step in sized))
            places[axis] = text if len(terms) == 1 else f"({text})"
        return None if left else places
