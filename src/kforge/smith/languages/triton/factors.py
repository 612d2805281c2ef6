"""Which calls of torch are matrix products, and where the elements of their factors lie."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.graph import Ref, contiguous, placed

if TYPE_CHECKING:
    from kforge.smith.graph import Graph, Node, Shape, Strides
    from kforge.smith.languages import Context


@dataclass(frozen=True)
class Factor:
    """Rows of a left factor, or columns of a right one: `count` in each of `batch` matrices, `length` elements each."""

    memory: str
    batch: int
    count: int
    length: int
    steps: tuple[int, int, int]
    """Elements between neighbouring matrices, between rows, and along a row."""

    @property
    def runs_along(self) -> bool:
        """Whether neighbours in memory belong to one row."""
        return self.steps[2] == 1 or self.steps[1] != 1


@dataclass(frozen=True)
class Product:
    left: Factor
    right: Factor
    bias: str | None

    @property
    def size(self) -> int:
        return self.left.batch * self.left.count * self.right.count


def product(node: Node, context: Context) -> Product | None:
    """The product that a call computes, or None."""
    packet = node.function.removeprefix("aten.").partition(".")[0]
    positional, named = node.arguments if node.kind == "call" else ((), None)
    if named or any(context.graph[source].dtype != "float32" for source in node.sources):
        return None
    names = [each.name if isinstance(each, Ref) else None for each in positional]
    match packet, names:
        case "mm" | "bmm" | "matmul", [str(left), str(right)]:
            return _of(left, right, None, context, turned=False)
        case "linear", [str(left), str(right), *bias] if len(bias) <= 1:
            return _of(left, right, bias[0] if bias else None, context, turned=True)
        case "addmm", [str(bias), str(left), str(right)] if len(context.graph[bias].shape) == 1:
            return _of(left, right, bias, context, turned=False)
    return None


def _of(left: str, right: str, bias: str | None, context: Context, *, turned: bool) -> Product | None:
    graph = context.graph
    shapes = graph[left].shape, graph[right].shape
    if min(map(len, shapes)) < 2 or 0 in (*shapes[0], *shapes[1]):
        return None
    together = len(shapes[1]) == 2  # one matrix for all batches: they are rows of one
    if not together and shapes[0][:-2] != shapes[1][:-2]:
        return None
    split = 0 if together else len(shapes[0]) - 2
    rows = _factor(left, graph, context, split)
    columns = _factor(right, graph, context, 0 if together else split, swapped=not turned)
    return Product(rows, columns, None if bias is None else context.elements(bias))


def _factor(name: str, graph: Graph, context: Context, split: int, *, swapped: bool = False) -> Factor:
    """The axes before `split` count matrices, those after it rows, and the last one a row's elements."""
    base, strides = placed(graph)[name]
    shape = graph[name].shape
    order = [*range(len(shape))]
    if swapped:
        order[-2:] = [order[-1], order[-2]]

    def steps(strides: Strides) -> tuple[int | None, ...]:
        sizes, along = [shape[axis] for axis in order], [strides[axis] for axis in order]
        return _step(sizes[:split], along[:split]), _step(sizes[split:-1], along[split:-1]), along[-1]

    found, memory = steps(strides), context.memory(base)
    if None in found:  # strides cannot say it: it is copied first
        found, memory = steps(contiguous(shape)), context.elements(name)
    between, rows, along = (each or 0 for each in found)
    sizes = [shape[axis] for axis in order]
    batch, count = math.prod(sizes[:split]), math.prod(sizes[split:-1])
    return Factor(memory, batch, count, sizes[-1], (between, rows, along))


def _step(sizes: Shape | list[int], strides: Strides | list[int]) -> int | None:
    """The step of several axes that are walked through as one; None where they cannot be."""
    pairs = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    for (_, outer), (size, inner) in itertools.pairwise(pairs):
        if outer != size * inner:
            return None
    return pairs[-1][1] if pairs else 0
