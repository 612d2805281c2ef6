"""Products of matrices and convolutions that the library is slow at, with the maps that follow them as a tail.

Where a processor has a matrix unit, single precision in three bfloat16 parts is faster than the library's own products,
and as exact (`matrix_unit.h`). Many tiny products are faster on any processor (`tiny_product.h`).
"""

from __future__ import annotations

import math
import textwrap
from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.convolutions import convolution_of
from kforge.smith.graph import contiguous
from kforge.smith.languages import Kernel
from kforge.smith.languages.cpp.writer import LARGE_BYTES, KernelWriter, helpers_of
from kforge.smith.loops import nest
from kforge.smith.products import product_of

if TYPE_CHECKING:
    from kforge.smith.convolutions import Convolution
    from kforge.smith.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.cpp.plan import CppPlan
    from kforge.smith.loops import Nest
    from kforge.smith.products import Factor, Product
    from kforge.smith.regions import Region

PANEL = 32
"""What is multiplied is padded to multiples of this."""
LIBRARY, OWN = 150e9, 225e9
"""Operations that one core does a second, the library's product and ours; measured, and only their ratio counts."""
PACKING, COPYING = 0.45e-9, 0.1e-9
"""Seconds that cutting a number into its parts takes, and bringing one that is cut into a tile."""
SMALL_CHANNELS = 16
"""With fewer the library's convolutions are far from what they can do."""
GAINS = MappingProxyType({0: math.inf, 1: 1.5, 2: 1.08, 3: 0.0})
"""Expected below this, the matrix unit leaves it to the library, by the plan's `matrix`."""
TINY, MANY = 16, 64
"""A product is tiny with no more rows, columns and inner places than this, and worth a kernel from so many on."""
MATRIX_PRODUCT, TINY_PRODUCT = ("matrix_unit", "matrix_product"), ("tiny_product",)
"""What each is written with."""


def kernel(name: str, node: Node, tail: Region | None, context: Context, plan: CppPlan) -> Kernel | None:
    """A kernel for this call, or None where it is no product, or one that the library does as well."""
    writer: _Writer
    if (product := product_of(node, context.graph)) is not None:
        if _is_tiny(product):
            writer = _ProductWriter(name, node, product, context, plan, TINY_PRODUCT)
        elif _is_possible(product) and _expected_gain(product) >= GAINS[plan.matrix]:
            writer = _ProductWriter(name, node, product, context, plan, MATRIX_PRODUCT)
        else:
            return None
    elif (convolution := convolution_of(node, context.graph)) is not None:
        if convolution.groups != 1 or _expected_gain_of_convolution(convolution) < GAINS[plan.matrix]:
            return None
        writer = _ConvolutionWriter(name, node, convolution, context, plan)
    else:
        return None
    return writer.plain() if tail is None else writer.with_tail(tail)


def _is_tiny(product: Product) -> bool:
    return product.batches >= MANY and max(product.rows, product.inner, product.columns) <= TINY


def _is_possible(product: Product) -> bool:
    """Whether each factor has neighbours in one direction, as the matrix unit wants them."""
    return all(1 in (factor.down, factor.across) for factor in (product.left, product.right))


def _expected_gain(product: Product) -> float:
    rows, inner, columns = map(_whole, (product.rows, product.inner, product.columns))
    library = 2 * product.rows * product.inner * product.columns / LIBRARY
    own = 2 * rows * inner * columns / OWN + PACKING * (rows * inner + inner * columns)
    return library / own


def _expected_gain_of_convolution(convolution: Convolution) -> float:
    inner = convolution.channels * convolution.taps
    share = min(1.0, (convolution.channels / SMALL_CHANNELS) ** 2)
    library = 2 * convolution.out * inner * convolution.places / (LIBRARY * share)
    own = 2 * _whole(convolution.out) * _whole(inner) * _whole(convolution.places) / OWN
    own += PACKING * convolution.channels * math.prod(convolution.window.sizes)
    if convolution.channels % PANEL or set(convolution.window.stride) != {1}:
        own += COPYING * inner * convolution.places
    return library / own


def _whole(size: int) -> int:
    return -(-size // PANEL) * PANEL


class _Writer(ABC):
    """Of a kernel that hands over its results in pieces of rows: (batch, row, first column, how many, values)."""

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
        """Each with what `forward` gives for it."""

    @abstractmethod
    def title(self) -> str: ...

    def before(self) -> str:
        """What stands before the function."""
        return ""

    @abstractmethod
    def begun(self) -> str:
        """The call that computes, up to its last argument, which is the tail."""

    def plain(self) -> Kernel:
        """The result itself, with its bias."""
        begun, value, out = self.begun(), self._value(), f"{self.node.name}_out"
        self._add(f"float* __restrict__ {out}", self.node.name)
        step = self.rows * self.columns
        place = _sum(_times("batch", step, self.batches), _times("row", self.columns, self.rows), "column")
        size = 4 * self.node.size
        hints = [f"in_large_pages({out}, {size});"] if size >= LARGE_BYTES else []
        return self._kernel([*hints, begun], f"{out}[{place}] = {value};", ("large_pages",) * len(hints))

    def with_tail(self, tail: Region) -> Kernel | None:
        """None where the tail walks through its elements in another order than the result."""
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
        """A tensor that the kernel reads, as the name of its parameter."""
        self._add(f"const float* __restrict__ {name}", argument)
        return name

    def _add(self, parameter: str, argument: str) -> None:
        self.parameters[parameter] = argument

    @property
    @abstractmethod
    def bias_index(self) -> str:
        """What a bias has one value for: `row` or `column`."""

    def _value(self) -> str:
        if not self.bias:
            return "product[i]"
        return f"product[i] + {self.given(self.bias, self.context.elements(self.bias))}[{self.bias_index}]"

    def _kernel(self, begun: list[str], body: str, helpers: tuple[str, ...]) -> Kernel:
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
        return Kernel(self.name, text, (f"library.{self.name}({arguments})",), (*helpers, *self.helpers))

    def _places(self, maps: Nest) -> dict[int, str] | None:
        """Each loop's index by batch, row and column, where its loops are these or several of them in one."""
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
            text = _sum(*(_times(index, step, each) for (index, each), step in zip(terms, steps, strict=True)))
            places[axis] = text if len(terms) == 1 else f"({text})"
        return None if left else places


class _ProductWriter(_Writer):
    bias_index = "column"

    def __init__(
        self, name: str, node: Node, product: Product, context: Context, plan: CppPlan, helpers: tuple[str, ...]
    ) -> None:
        """`helpers`: the last one is the function that multiplies."""
        sizes = (product.batches, product.rows, product.columns)
        super().__init__(name, node, sizes, product.bias, context, plan, helpers)
        self.product = product

    def title(self) -> str:
        many = f"{self.batches} times " if self.batches > 1 else ""
        sizes = f"{self.rows} x {self.product.inner} by {self.product.inner} x {self.columns}"
        return f"{self.node.origin or self.name}: {many}{sizes}"

    def begun(self) -> str:
        left, right = self._factor(self.product.left), self._factor(self.product.right)
        sizes = f"{self.batches}, {self.rows}, {self.product.inner}, {self.columns}"
        return f"{self.helpers[-1]}<{sizes}>({left}, {right}, "

    def _factor(self, factor: Factor) -> str:
        if factor.copied:
            data = self.given(factor.name, self.context.elements(factor.name))
        else:
            data = self.given(factor.base, self.context.memory(factor.base))
            data += f" + {factor.offset}" if factor.offset else ""
        return f"{{{data}, {factor.batch}, {factor.down}, {factor.across}}}"


class _ConvolutionWriter(_Writer):
    bias_index = "row"

    def __init__(self, name: str, node: Node, convolution: Convolution, context: Context, plan: CppPlan) -> None:
        sizes = (convolution.images, convolution.out, convolution.places)
        super().__init__(name, node, sizes, convolution.bias, context, plan, ("matrix_unit", "convolution"))
        self.convolution = convolution

    def title(self) -> str:
        form = self.convolution
        sizes = " x ".join(str(size) for size in form.window.sizes if size != 1)
        window = " x ".join(str(size) for size in form.window.window if size != 1) or "1"
        return f"{self.node.origin or self.name}: {window} over {form.channels} channels of {sizes}, to {form.out}"

    def begun(self) -> str:
        form = self.convolution
        x, weight = (self.given(each, self.context.elements(each)) for each in (form.x, form.weight))
        sizes = f"{form.images}, {form.channels}, {form.out}, {', '.join(map(str, form.window.of_volume().sizes))}"
        return f"Convolution<{sizes}, {self.name}_window>::run({x}, {weight}, "

    def before(self) -> str:
        form = self.convolution.window.of_volume()
        members = {"size": form.window, "padding": form.padding, "stride": form.stride, "dilation": form.dilation}
        said = ", ".join(f"{name}[3] = {{{', '.join(map(str, each))}}}" for name, each in members.items())
        return f"struct {self.name}_window {{\n    static constexpr int64_t {said};\n}};\n"


def _times(index: str, step: int, size: int) -> str:
    return "" if size == 1 else index if step == 1 else f"{index} * {step}"


def _sum(*terms: str) -> str:
    return " + ".join(term for term in terms if term) or "0"
