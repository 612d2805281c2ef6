"""A rewrite rule that turns a matrix times a vector into a sum over each row, which reads memory at full speed.

The maps before and after it can then be part of the same kernel. A library's kernel cannot include them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.smith.ir.graph import placed
from kforge.smith.rewrite.linear import linear_of
from kforge.smith.rewrite.rule import node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Graph, Operand
    from kforge.smith.rewrite.rule import Site


@node_rule(
    "product with a vector",
    when="A @ v, or a product with one row or one column, whose summed elements are contiguous in memory",
    saves="a library call, and the memory traffic between it and the kernels around it",
)
def product_with_vector(site: Site) -> Operand | None:
    graph, node, b = site.graph, site.node, site.builder
    if (operands := _matrix_and_vector(site)) is not None:
        matrix, vector = operands
        summed = b.reduce("sum", b.map("mul", matrix, vector), (len(b.shape(matrix)) - 1,))
        return b.reshape(summed, node.shape)
    linear = linear_of(graph, node)
    if linear is None or not linear.is_product or not linear.depth:
        return None
    x, weight = graph[linear.x], graph[linear.weight]
    last = len(weight.shape) - 1
    if node.shape[linear.features] == 1 and _runs_along(graph, x.name, len(x.shape) - 1):
        pairs = b.map("mul", x.name, linear.rows(b))
        if b.shape(pairs) != x.shape:
            return None
        product = b.reduce("sum", pairs, (len(x.shape) - 1,))
    elif (
        last == 1
        and math.prod(x.shape[:-1]) == 1
        and _runs_along(graph, weight.name, last if linear.weight_axis == 0 else 0)
    ):
        pairs = b.map("mul", linear.rows(b), b.reshape(x.name, x.shape[-1:]))
        product = b.reshape(b.reduce("sum", pairs, (1,)), node.shape)
    else:
        return None
    return product if linear.bias is None else b.map("add", product, linear.bias)


def _matrix_and_vector(site: Site) -> tuple[str, str] | None:
    node = site.node
    if node.kind != "call" or node.function not in ("aten.matmul.default", "aten.mv.default"):
        return None
    left, right = site.source(0), site.source(1)
    if left is None or right is None or {left.dtype, right.dtype, node.dtype} != {"float32"}:
        return None
    along = len(left.shape) - 1
    if not along or len(right.shape) != 1 or not right.size or not _runs_along(site.graph, left.name, along):
        return None
    return left.name, right.name


def _runs_along(graph: Graph, name: str, axis: int) -> bool:
    """Return whether the elements along this axis are contiguous in memory."""
    return placed(graph)[name].strides[axis] == 1
