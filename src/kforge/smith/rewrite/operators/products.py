"""Rewrites matrix products of which only a part is needed, and chains of products that are cheaper in another order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kforge.smith.ir.graph import Ref, broadcast
from kforge.smith.rewrite.linear import linear_of
from kforge.smith.rewrite.rule import node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Builder, Graph, Node, Operand, Shape
    from kforge.smith.rewrite.rule import Site

WORTH = 0.8
"""The other order must take at most this share of the multiplications, since BLAS is not equally fast for all
shapes."""

_PRODUCTS = ("aten.matmul.default", "aten.mm.default", "aten.bmm.default")


def _product(graph: Graph, operand: Operand | None) -> tuple[Node, Node] | None:
    """Return both factors of a float32 product of matrices, or of a matrix and a vector. None for other operands."""
    node = graph[operand] if isinstance(operand, str) else None
    if node is None or node.kind != "call" or node.function not in _PRODUCTS or node.dtype != "float32":
        return None
    left, right = (graph[each] for each in node.inputs if isinstance(each, str))
    return (left, right) if len(left.shape) > 1 else None


# --- diagonal factors -------------------------------------------------------------------------------------------------


def _diagonal_of(graph: Graph, node: Node) -> Node | None:
    """Return the vector, or the batch of vectors, from which this diagonal matrix was made. None for other nodes."""
    if node.kind != "call" or node.dtype != "float32" or node.arguments[1]:
        return None
    given, *rest = node.arguments[0]
    match node.function:
        case "aten.diag.default" if rest in ([], [0]) and len(graph[given.name].shape) == 1:
            return graph[given.name]
        case "aten.diag_embed.default" if rest in ([], [0], [0, -2], [0, -2, -1]):
            return graph[given.name]
    return None


@node_rule(
    "diagonal factor",
    when="diag(v) @ B, A @ diag(v), linear(x, diag(v))",
    saves="the product: rows or columns are scaled",
    algebraic=True,
)
def diagonal_factor(site: Site) -> Operand | None:
    graph, factors = site.graph, _product(site.graph, site.node.name)
    if factors is not None:
        left, right = (_diagonal_of(graph, each) for each in factors)
        b = site.builder
        if left is not None and len(factors[1].shape) == 1:
            return b.map("mul", left.name, factors[1].name)
        if left is not None:
            return b.map("mul", b.reshape(left.name, (*left.shape, 1)), factors[1].name)
        if right is not None:
            return b.map("mul", factors[0].name, _as_row(b, right, len(site.node.shape)))
    linear = linear_of(graph, site.node)
    if linear is not None and linear.function == "aten.linear.default":
        vector = _diagonal_of(graph, graph[linear.weight])
        if vector is not None:
            b = site.builder
            scaled = b.map("mul", linear.x, vector.name)
            return scaled if linear.bias is None else b.map("add", scaled, linear.bias)
    return None


def _as_row(b: Builder, vector: Node, rank: int) -> str:
    return vector.name if rank == 1 else b.reshape(vector.name, (*vector.shape[:-1], 1, vector.shape[-1]))


# --- the diagonal of a product ----------------------------------------------------------------------------------------


def _diagonal_entries(site: Site, product: Node) -> str | None:
    """Return a node with the diagonal, of shape [..., n, 1], of a product of shape [..., n, n], without computing the
    other elements. None if that is not possible."""
    linear = linear_of(site.graph, product)
    square = len(product.shape) > 1 and product.shape[-1] == product.shape[-2]
    if linear is None or not linear.is_product or linear.bias is not None or not square or not site.alone(product.name):
        return None
    b, last = site.builder, len(product.shape) - 1
    return b.reduce("sum", b.map("mul", linear.x, linear.rows(b)), (last,))


@node_rule(
    "diagonal of a product",
    when="trace(A @ B), diagonal(A @ B)",
    saves="the product: only the entries of the diagonal are computed",
    algebraic=True,
)
def diagonal_of_product(site: Site) -> Operand | None:
    node, source = site.node, site.source()
    if node.kind != "call" or source is None or node.arguments[1]:
        return None
    rank, rest = len(source.shape), node.arguments[0][1:]
    of_two = rank == 2 and node.function in ("aten.trace.default", "aten.diag.default", "aten.diagonal.default")
    last_two = rest[:1] == [0] and len(rest) == 3 and {axis % rank for axis in rest[1:]} == {rank - 2, rank - 1}
    if not (of_two and rest in ([], [0])) and not (node.function == "aten.diagonal.default" and last_two):
        return None
    entries = _diagonal_entries(site, source)
    if entries is None:
        return None
    if node.function == "aten.trace.default":
        entries = site.builder.reduce("sum", entries, (0,))
    return site.builder.reshape(entries, node.shape)


# --- the order of a chain ---------------------------------------------------------------------------------------------


def _shape_of(left: Shape, right: Shape) -> Shape:
    if len(right) == 1:
        return left[:-1]
    return (*broadcast(left[:-2], right[:-2]), left[-2], right[-1])


def _cost(left: Shape, right: Shape) -> int:
    return math.prod(_shape_of(left, right)) * left[-1]


@node_rule(
    "order of a chain",
    when="(A @ B) @ C or A @ (B @ C) is cheaper the other way round",
    saves="multiplications, by the shapes",
    algebraic=True,
)
def order_of_chain(site: Site) -> Operand | None:
    graph, factors = site.graph, _product(site.graph, site.node.name)
    if factors is None:
        return None
    left, right = factors
    now = _cost(left.shape, right.shape)
    inner = _product(graph, left.name) if site.alone(left.name) else None
    if inner is not None and (len(right.shape) > 1 or len(inner[1].shape) == 2):
        now += _cost(inner[0].shape, inner[1].shape)
        middle = _shape_of(inner[1].shape, right.shape)
        if _cost(inner[1].shape, right.shape) + _cost(inner[0].shape, middle) <= WORTH * now:
            return _matmul(site.builder, inner[0].name, _matmul(site.builder, inner[1].name, right.name))
        return None
    inner = _product(graph, right.name) if site.alone(right.name) else None
    if inner is not None and len(inner[1].shape) > 1:
        now += _cost(inner[0].shape, inner[1].shape)
        middle = _shape_of(left.shape, inner[0].shape)
        if _cost(left.shape, inner[0].shape) + _cost(middle, inner[1].shape) <= WORTH * now:
            return _matmul(site.builder, _matmul(site.builder, left.name, inner[0].name), inner[1].name)
    return None


def _matmul(b: Builder, left: str, right: str) -> str:
    arguments: Any = ([Ref(left), Ref(right)], {})
    return b.call("matmul", "aten.matmul.default", arguments, _shape_of(b.shape(left), b.shape(right)), "float32")


PRODUCTS = (diagonal_factor, diagonal_of_product, order_of_chain)
