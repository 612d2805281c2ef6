"""Recognises calls of torch that are matrix products, and describes them as a batch of products left @ right + bias."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from kforge.smith.ir.graph import Ref, contiguous, placed

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Graph, Node, Shape, Strides


@dataclass(frozen=True)
class Factor:
    """Where the elements of one factor lie in memory. `down` and `across` are the strides between rows and between
    columns."""

    name: str
    base: str
    """Name of the node that owns the factor's memory. It is the factor itself if strides cannot express it; it is then
    copied first."""
    offset: int
    """Index of the factor's first element in the memory of `base`."""
    batch: int
    """Number of elements between two matrices of the batch. 0 if all products share one matrix."""
    down: int
    across: int
    copied: bool = False

    def transposed(self) -> Factor:
        return replace(self, down=self.across, across=self.down)


@dataclass(frozen=True)
class Product:
    """A batch of matrix products: `rows` x `inner` times `inner` x `columns`."""

    batches: int
    rows: int
    inner: int
    columns: int
    left: Factor
    right: Factor
    bias: str = ""
    """Name of a node with one value per column, which is added to the product. Empty if there is none."""


def product_of(node: Node, graph: Graph) -> Product | None:
    """Return the description of a product call. None if the node is not a product, or has a form that kernels do not
    support."""
    if node.kind != "call" or node.dtype != "float32" or any(graph[s].dtype != "float32" for s in node.sources):
        return None
    positional, named = node.arguments
    if named or not all(isinstance(each, Ref) or each is None for each in positional):
        return None
    names = [each.name if isinstance(each, Ref) else "" for each in positional]
    match node.function, names:
        case "aten.linear.default", [x, weight, *bias]:
            return _linear(graph, x, weight, bias[0] if bias else "")
        case "aten.addmm.default", [bias, left, right] if graph[bias].shape == node.shape[-1:]:
            return _product(graph, left, right, bias)
        case "aten.mm.default" | "aten.bmm.default" | "aten.matmul.default", [left, right]:
            return _product(graph, left, right)
    return None


def _linear(graph: Graph, x: str, weight: str, bias: str) -> Product | None:
    if len(graph[weight].shape) != 2:
        return None
    rows = graph[x].shape[:-1]
    (columns, inner), left = graph[weight].shape, _flattened(graph, x)
    right = matrices(graph, weight, ()).transposed()
    return Product(1, math.prod(rows), inner, columns, left, right, bias)


def _product(graph: Graph, left: str, right: str, bias: str = "") -> Product | None:
    one, other = graph[left].shape, graph[right].shape
    if len(one) < 2 or len(other) < 2:
        return None
    if len(other) == 2:  # the same matrix for all rows
        flat = _flattened(graph, left)
        return Product(1, math.prod(one[:-1]), one[-1], other[-1], flat, matrices(graph, right, ()), bias)
    if one[:-2] != other[:-2]:
        return None
    batch = one[:-2]
    factors = matrices(graph, left, batch), matrices(graph, right, batch)
    return Product(math.prod(batch), one[-2], one[-1], other[-1], *factors, bias)


def _flattened(graph: Graph, name: str) -> Factor:
    """Return a tensor as one matrix: its last axis gives the columns, and all other axes together the rows."""
    shape, (base, strides, offset) = graph[name].shape, placed(graph)[name]
    down = _step(shape[:-1], strides[:-1])
    if down is None:
        return Factor(name, name, 0, 0, shape[-1], 1, copied=True)
    return Factor(name, base, offset, 0, down, strides[-1])


def matrices(graph: Graph, name: str, batch: Shape) -> Factor:
    """Return a tensor as a batch of matrices: the last two axes are the matrix, and `batch` are the sizes of the axes
    before."""
    shape, (base, strides, offset) = graph[name].shape, placed(graph)[name]
    step = _step(batch, strides[: len(batch)])
    if step is None:
        between, down, across = contiguous(shape)[-3:]
        return Factor(name, name, 0, between, down, across, copied=True)
    return Factor(name, base, offset, step, strides[-2], strides[-1])


def _step(shape: Shape, strides: Strides) -> int | None:
    """Return the single stride with which all of these axes can be walked in order, or None if they need several
    strides."""
    long = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    for (_, stride), (size, following) in pairwise(long):
        if stride != size * following:
            return None
    return long[-1][1] if long else 0
