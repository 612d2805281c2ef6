"""Writes C++ kernels for matrix products for which torch's library is slow. The maps that follow are part of the
kernel.

On a processor with a matrix unit, float32 numbers are split into three bfloat16 parts. That is faster than torch's own
products and as exact (`matrix_unit.h`). For many tiny products, kforge's kernel is faster on any processor
(`tiny_product.h`).
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
"""The matrix unit's kernel pads the sizes of a product to multiples of this number."""
LIBRARY, OWN = 150e9, 225e9
"""Operations per second of one core: of torch's own product, and of kforge's product on the matrix unit. Both were
measured, and only their ratio matters."""
PACKING = 0.45e-9
"""Seconds to split one number into its three bfloat16 parts."""
GAINS = MappingProxyType({0: math.inf, 1: 1.5, 2: 1.08, 3: 0.0})
"""Least expected speedup for which the matrix unit replaces torch's library, by the value of the plan's `matrix`."""
TINY, MANY = 16, 64
"""A product is tiny if its rows, columns and inner size are at most `TINY`. Tiny products get a kernel if a call has at
least `MANY` of them."""
MATRIX_PRODUCT, TINY_PRODUCT = ("matrix_unit", "matrix_product"), ("tiny_product",)
"""Names of the C++ helpers that each kind of product needs."""


def kernel(name: str, node: Node, tail: Region | None, context: Context, plan: CppPlan) -> WrittenKernel | None:
    """Return a kernel for this call, or None if the call is not a product or torch's own kernel is expected to be as
    fast."""
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
    """Return whether each factor is contiguous along one axis, as the matrix unit's kernel requires."""
    return all(1 in (factor.down, factor.across) for factor in (product.left, product.right))


def _expected_gain(product: Product) -> float:
    rows, inner, columns = map(whole, (product.rows, product.inner, product.columns))
    library = 2 * product.rows * product.inner * product.columns / LIBRARY
    own = 2 * rows * inner * columns / OWN + PACKING * (rows * inner + inner * columns)
    return library / own


def whole(size: int) -> int:
    """Round a size up to a multiple of `PANEL`."""
    return -(-size // PANEL) * PANEL


class _ProductWriter(TailWriter):
    """Writes a batch of matrix products as a call of a C++ helper."""

    bias_index = "column"

    def __init__(
        self, name: str, node: Node, product: Product, context: Context, plan: CppPlan, helpers: tuple[str, ...]
    ) -> None:
        """`helpers` are names of C++ helpers; the last one is the function that multiplies."""
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
