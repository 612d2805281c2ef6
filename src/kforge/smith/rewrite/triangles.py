"""Computes products with a triangular factor, or of which only a triangle is kept, in blocks, and skips blocks that are
zero or not needed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kforge.smith.ir.graph import Ref
from kforge.smith.rewrite.rule import node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Builder, Graph, Node, Operand
    from kforge.smith.rewrite.rule import Site

BLOCK = 128
"""Fewest rows of a block. With fewer rows, BLAS is too slow."""
FEWEST_BLOCKS = 3
"""Fewest blocks for which the rules apply. Two blocks would save only a quarter of the work, and several calls instead
of one may cost as much."""
MOST_BLOCKS = 8
"""Most blocks. With n blocks, (n + 1) / 2n of the work remains: 0.56 with eight."""


def _triangle(graph: Graph, operand: Operand | None) -> tuple[Node, bool] | None:
    """Return the operand of tril or triu, and whether it is tril. None unless the node is a float32 matrix cut at the
    main diagonal."""
    node = graph[operand] if isinstance(operand, str) else None
    if node is None or node.function not in ("aten.tril.default", "aten.triu.default") or node.arguments[1]:
        return None
    plain = node.arguments[0][1:] in ([], [0]) and len(node.shape) == 2 and node.dtype == "float32"
    return (graph[node.sources[0]], "tril" in node.function) if plain else None


def _factors(graph: Graph, node: Node | None) -> tuple[Node, Node] | None:
    if node is None or node.function not in ("aten.mm.default", "aten.matmul.default") or node.dtype != "float32":
        return None
    left, right = (graph[name] for name in (node.arguments[0][0].name, node.arguments[0][1].name))
    return (left, right) if len(left.shape) == len(right.shape) == 2 else None


def _triangle_of_a_product(site: Site) -> tuple[Node, bool, tuple[Node, Node]] | None:
    """Return the product of which this node takes a triangle, whether it takes the lower one, and both factors. None
    for other nodes."""
    triangle = _triangle(site.graph, site.node.name)
    factors = _factors(site.graph, triangle[0]) if triangle is not None else None
    return (*triangle, factors) if triangle is not None and factors is not None else None


def _blocks(size: int) -> list[tuple[int, int]]:
    count = min(MOST_BLOCKS, size // BLOCK)
    if count < FEWEST_BLOCKS:
        return []
    return list(pairwise(size * number // count for number in range(count + 1)))


def _part(b: Builder, x: str, axis: int, first: int, last: int) -> str:
    return x if (first, last) == (0, b.shape(x)[axis]) else b.slice(x, axis, first, 1, last - first)


def _product(b: Builder, left: str, right: str) -> str:
    shape = (b.shape(left)[0], b.shape(right)[1])
    return b.call("block", "aten.mm.default", ([Ref(left), Ref(right)], {}), shape, "float32")


def _padded(b: Builder, block: str, begin: int, size: int) -> str:
    """Return the matrix with columns of zeros before and after it, so that it has `size` columns."""
    rows, columns = b.shape(block)
    if columns == size:
        return block
    padding: Any = ([Ref(block), [begin, size - begin - columns]], {})
    return b.call("padded", "aten.constant_pad_nd.default", padding, (rows, size), "float32")


def _joined(b: Builder, parts: list[str], axis: int, shape: tuple[int, ...]) -> str:
    arguments: Any = ([[Ref(each) for each in parts], axis], {})
    return b.call("blocks", "aten.cat.default", arguments, shape, "float32")


@node_rule(
    "triangle of triangles",
    when="tril(tril(A) @ tril(B)), and the same with triu",
    saves="a pass over the product, which is such a triangle already",
    algebraic=True,
)
def triangle_of_triangles(site: Site) -> Operand | None:
    found = _triangle_of_a_product(site)
    if found is None:
        return None
    product, is_lower, factors = found
    triangles = [_triangle(site.graph, each.name) for each in factors]
    alike = all(each is not None and each[1] == is_lower for each in triangles)
    return product.name if alike and factors[0].shape == factors[1].shape else None


@node_rule(
    "triangular factor",
    when="tril(A) @ B, A @ triu(B) …, where the triangular matrix is a large square",
    saves="nearly half of the multiplications, those with blocks of zeros; more than half if both are triangles",
    algebraic=True,
)
def triangular_factor(site: Site) -> Operand | None:
    factors = _factors(site.graph, site.node)
    if factors is None:
        return None
    b, (left, right) = site.builder, factors
    # the left factor is a block that this rule has cut from a triangle: it is not divided further
    if left.function == "slice" and _triangle(site.graph, left.sources[0]) is not None:
        return None
    for factor, axis in ((left, 0), (right, 1)):
        triangle = _triangle(site.graph, factor.name)
        size = factor.shape[axis]
        if triangle is None or factor.shape[0] != factor.shape[1] or not _blocks(size):
            continue
        beside = _triangle(site.graph, right.name) if axis == 0 else None
        are_both = beside is not None and beside[1] == triangle[1] and right.shape == left.shape
        parts = []
        for first, last in _blocks(size):
            # rows of a lower triangle end at the diagonal, and its columns begin there; an upper one is the opposite
            begin, end = (0, last) if triangle[1] == (axis == 0) else (first, size)
            block = _part(b, _part(b, factor.name, axis, first, last), 1 - axis, begin, end)
            other = _part(b, (right if axis == 0 else left).name, axis, begin, end)
            if are_both:  # the other factor is zero in the remaining columns, too
                parts.append(_padded(b, _product(b, block, _part(b, other, 1, begin, end)), begin, size))
            else:
                parts.append(_product(b, block, other) if axis == 0 else _product(b, other, block))
        return _joined(b, parts, axis, site.node.shape)
    return None


@node_rule(
    "triangle of a product",
    when="tril(A @ B), triu(A @ B), where the product is a large square matrix",
    saves="nearly half of the multiplications: those of blocks that are discarded",
    algebraic=True,
)
def triangle_of_product(site: Site) -> Operand | None:
    found = _triangle_of_a_product(site)
    if found is None or not site.alone(found[0].name):
        return None
    _, is_lower, (left, right) = found
    size, columns = site.node.shape
    if size != columns or not _blocks(size):
        return None
    b, rows = site.builder, []
    for first, last in _blocks(size):
        begin, end = (0, last) if is_lower else (first, size)
        block = _product(b, _part(b, left.name, 0, first, last), _part(b, right.name, 1, begin, end))
        rows.append(_padded(b, block, begin, size))
    whole = _joined(b, rows, 0, site.node.shape)
    return b.call(site.node.origin or "triangle", site.node.function, ([Ref(whole)], {}), site.node.shape, "float32")


TRIANGLES = (triangle_of_triangles, triangular_factor, triangle_of_product)
