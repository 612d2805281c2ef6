"""Writes matrix products for which the library is slow, with the maps after them as a tail.

Where a processor has a matrix unit, single precision in three bfloat16 parts is faster than the library's own products,
and as exact (`matrix_unit.h`). Many tiny products are faster on any processor (`tiny_product.h`).
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.languages.cpp.tails import TailWriter
from kforge.smith.patterns.products import product_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context, WrittenKernel
    from kforge.smith.languages.cpp.plan import CppPlan
    from kforge.smith.patterns.products import Factor, Product

PANEL = 32
"""Sizes of a product are padded to multiples of this."""
LIBRARY, OWN = 150e9, 225e9
"""Operations per second of one core, for the library's product and for kforge's; measured, and only their ratio
counts."""
PACKING = 0.45e-9
"""Seconds to split one number into its parts."""
GAINS = MappingProxyType({0: math.inf, 1: 1.5, 2: 1.08, 3: 0.0})
"""Least expected speedup for which the matrix unit is used instead of the library, by the plan's `matrix`."""
TINY, MANY = 16, 64
"""A product is tiny when its rows, columns and inner size are at most the first number. It gets a kernel when there are
at least as many products as the second number."""
MATRIX_PRODUCT, TINY_PRODUCT = ("matrix_unit", "matrix_product"), ("tiny_product",)
"""The C++ helpers of each kind of product."""


def kernel(name: str, node: Node, tail: Region | None, context: Context, plan: CppPlan) -> WrittenKernel | None:
    """Return a kernel for this call; None where it is not a product, or the library is as fast."""
    product = product_of(node, context.graph)
    if product is None:
        return None
    if _is_tiny(product):
        return _ProductWriter(name, node, product, context, plan, TINY_PRODUCT).write(tail)
    if _is_possible(product) and _expected_gain(product) >= GAINS[plan.matrix]:
        return _ProductWriter(name, node, product, context, plan, MATRIX_PRODUCT).write(tail)
    return None


def _is_tiny(product: Product) -> bool:
    return product.batches >= MANY and max(product.rows, product.inner, product.columns) <= TINY


def _is_possible(product: Product) -> bool:
    """Return whether each factor is contiguous along one axis, as the matrix unit requires."""
    return all(1 in (factor.down, factor.across) for factor in (product.left, product.right))


def _expected_gain(product: Product) -> float:
    rows, inner, columns = map(whole, (product.rows, product.inner, product.columns))
    library = 2 * product.rows * product.inner * product.columns / LIBRARY
    own = 2 * rows * inner * columns / OWN + PACKING * (rows * inner + inner * columns)
    return library / own


def whole(size: int) -> int:
    """Round a size up to whole panels."""
    return -(-size // PANEL) * PANEL


class _ProductWriter(TailWriter):
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
