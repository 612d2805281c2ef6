"""Products of matrices on a processor's matrix unit, with the maps that follow them as a tail.

Where there is such a unit, single precision in three bfloat16 parts is faster than the library's own products, and as
exact (`matrix_unit.h`).
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from kforge.smith.graph import contiguous, placed
from kforge.smith.languages import Kernel
from kforge.smith.languages.cpp import nests
from kforge.smith.loops import nest
from kforge.smith.products import product_of

if TYPE_CHECKING:
    from kforge.smith.graph import Graph, Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.cpp.plan import CppPlan
    from kforge.smith.loops import Nest
    from kforge.smith.products import Factor, Product
    from kforge.smith.regions import Region

PANEL = 32
"""What is multiplied is padded to multiples of this."""
LIBRARY, OWN = 150e9, 225e9
"""Operations that one core does a second, the library's product and ours; measured, and only their ratio counts."""
PACKING = 0.45e-9
"""Seconds that cutting a number into its parts takes."""
GAIN = 1.08
"""Expected below this, it is left to the library."""


def kernel(name: str, node: Node, tail: Region | None, context: Context, plan: CppPlan) -> Kernel | None:
    """A kernel for this call, or None where it is no product, or one that the library does as well."""
    product = product_of(node, context.graph)
    if product is None or not _is_possible(product) or (plan.matrix == 1 and not _is_worth_it(product)):
        return None
    writer = _Writer(name, node, product, context, plan)
    return writer.plain() if tail is None else writer.with_tail(tail)


def _is_possible(product: Product) -> bool:
    """Whether each factor has neighbours in one direction."""
    return all(1 in (factor.down, factor.across) for factor in (product.left, product.right))


def _is_worth_it(product: Product) -> bool:
    sizes = (product.rows, product.inner, product.columns)
    rows, inner, columns = (-(-size // PANEL) * PANEL for size in sizes)
    library = 2 * product.rows * product.inner * product.columns / LIBRARY
    own = 2 * rows * inner * columns / OWN + PACKING * (rows * inner + inner * columns)
    return library > GAIN * own


class _Writer:
    def __init__(self, name: str, node: Node, product: Product, context: Context, plan: CppPlan) -> None:
        self.name = name
        self.node = node
        self.product = product
        self.context = context
        self.plan = plan
        self.graph: Graph = context.graph
        self.arguments: dict[str, str] = {}
        """What `forward` gives for each parameter."""
        self.parameters: list[str] = []

    def plain(self) -> Kernel:
        """The product itself, with its bias."""
        factors = self._factors()
        value = self._value()
        out = self._output(self.node.name)
        place = _sum(_times("batch", self.product.rows * self.product.columns, self.product.batches),
                     _times("row", self.product.columns, self.product.rows), "column")  # fmt: skip
        return self._kernel(factors, f"{out}[{place}] = {value};", ())

    def with_tail(self, tail: Region) -> Kernel | None:
        """None where the tail walks through its elements in another order than the product."""
        maps = nest(tail, self.graph)
        places = self._places(maps)
        if places is None:
            return None
        flat = contiguous(tuple(loop.size for loop in maps.loops))
        own = [buffer for buffer in maps.buffers if buffer.base == self.node.name]
        if not own or any(buffer.steps != flat for buffer in own):
            return None
        factors = self._factors()
        given = {buffer.name: f"{self.node.name}_value" for buffer in own}
        value = f"const float {self.node.name}_value = {self._value()};"
        for buffer in maps.buffers:
            if buffer.name in maps.outputs:
                self._output(buffer.name)
            elif buffer not in own:
                self._given(buffer.name, self.context.memory(buffer.base), nests.TYPES[buffer.dtype])
        body = nests.statements(maps, self.graph, self.plan, places, given)
        return self._kernel(factors, f"{value}\n{body}", tuple(nests.helpers_of(maps)))

    # --- text -----------------------------------------------------------------------------------------------------

    def _kernel(self, factors: tuple[str, str], body: str, helpers: tuple[str, ...]) -> Kernel:
        product = self.product
        sizes = f"{product.rows} x {product.inner} by {product.inner} x {product.columns}"
        many = f"{product.batches} times " if product.batches > 1 else ""
        template = f"{product.batches}, {product.rows}, {product.inner}, {product.columns}"
        piece = "int64_t batch, int64_t row, int64_t first, int64_t count, const float* __restrict__ product"
        text = f"""\
// {self.node.origin or self.name}: {many}{sizes}
extern "C" void {self.name}({", ".join(self.parameters)}) {{
    matrix_product<{template}>({factors[0]}, {factors[1]}, [&]({piece}) {{
        #pragma omp simd
        for (int64_t i = 0; i < count; ++i) {{
            const int64_t column = first + i;
{textwrap.indent(body, " " * 12)}
        }}
    }});
}}
"""
        arguments = ", ".join(self.arguments.values())
        return Kernel(self.name, text, (f"library.{self.name}({arguments})",), (*helpers, "matrix_unit"))

    def _factors(self) -> tuple[str, str]:
        return self._factor(self.product.left), self._factor(self.product.right)

    def _factor(self, factor: Factor) -> str:
        base = placed(self.graph)[factor.name][0]
        if factor.copied:
            self._given(factor.name, self.context.elements(factor.name))
        else:
            self._given(base, self.context.memory(base))
        data = factor.name if factor.copied else base
        return f"{{{data}, {factor.batch}, {factor.down}, {factor.across}}}"

    def _value(self) -> str:
        bias = self.product.bias
        if not bias:
            return "product[i]"
        self._given(bias, self.context.elements(bias))
        return f"product[i] + {bias}[column]"

    def _given(self, name: str, argument: str, kind: str = "float") -> None:
        if name in self.arguments:
            return
        self.arguments[name] = argument
        self.parameters.append(f"const {kind}* __restrict__ {name}")

    def _output(self, name: str) -> str:
        self.arguments[f"{name}_out"] = name
        self.parameters.append(f"{nests.TYPES[self.graph[name].dtype]}* __restrict__ {name}_out")
        return f"{name}_out"

    def _places(self, maps: Nest) -> dict[int, str] | None:
        """Each loop's index by batch, row and column, where its loops are these or several of them in one."""
        product = self.product
        axes = [("batch", product.batches), ("row", product.rows), ("column", product.columns)]
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
            text = _sum(*(_times(index, step, each) for (index, each), step in zip(terms, steps, strict=True)))
            places[axis] = text if len(terms) == 1 else f"({text})"
        return None if left else places


def _times(index: str, step: int, size: int) -> str:
    return "" if size == 1 else index if step == 1 else f"{index} * {step}"


def _sum(*terms: str) -> str:
    return " + ".join(term for term in terms if term) or "0"
