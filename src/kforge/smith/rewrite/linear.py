"""Describes calls that are linear in their first operand (linear, matmul, convolutions) as one kind of data.

result = L(x, weight) + bias. Rules need to know two things about the axes of the result: the feature axis, which is an
axis of the weight, and the free axes, which are axes of x that pass through unchanged. A sum along a free axis may come
before or after the call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.smith.ir.graph import Ref

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.smith.ir.graph import Builder, Graph, Node, Shape


@dataclass(frozen=True)
class Linear:
    """A call that computes L(x, weight) + bias, as described in the module's docstring. `free` are the free axes."""

    node: Node
    x: str
    weight: str
    bias: str | None
    features: int
    """The feature axis of the result: the one that comes from the weight."""
    weight_axis: int
    """The axis of the weight that is the feature axis of the result."""
    free: frozenset[int]
    depth: int
    """Number of multiplications for one element of the result."""
    function: str
    """The operator to call for the same operation without a bias."""
    tail: tuple[Any, ...] = ()
    """The operator's further arguments, after x and weight. For a convolution: no bias, stride, padding and so on."""
    kernel: Shape = ()
    """The sizes of a convolution's window. Empty for other operators."""
    takes_bias: bool = False

    @property
    def cost(self) -> int:
        return self.node.size * self.depth

    @property
    def is_product(self) -> bool:
        """Whether the call is a matrix product, not a convolution."""
        return not self.kernel

    def again(self, builder: Builder, x: str, weight: str, bias: str | None = None) -> str:
        """Add the same operator with other operands to the graph, and return its name. Only operators with `takes_bias`
        accept a bias."""
        shape = list(self.node.shape)
        for axis in self.free:
            shape[axis] = builder.shape(x)[axis]
        shape[self.features] = builder.shape(weight)[self.weight_axis]
        tail = self.tail if bias is None else (Ref(bias), *self.tail[1:])
        arguments: Any = ([Ref(x), Ref(weight), *tail], {})
        return builder.call(self.node.origin or "linear", self.function, arguments, tuple(shape), self.node.dtype)

    def bias_in_place(self, builder: Builder) -> str | None:
        """Return the bias, reshaped so that it broadcasts along the feature axis of the result. None if there is no
        bias."""
        if self.bias is None or len(builder.shape(self.bias)) != 1:
            return self.bias
        after = len(self.node.shape) - 1 - self.features
        return builder.reshape(self.bias, (*([1] * self.features), *builder.shape(self.bias), *([1] * after)))

    def rows(self, builder: Builder) -> str:
        """Return the weight of a matrix product with one row per feature, each as long as a row of x."""
        rank = len(builder.shape(self.weight))
        if self.weight_axis == rank - 2:
            return self.weight
        return builder.permute(self.weight, (*range(rank - 2), rank - 1, rank - 2))


def linear_of(graph: Graph, node: Node) -> Linear | None:
    """Return the description of a call, or None if it is not linear or has a form that rules do not support."""
    make = _KINDS.get(node.function) if node.kind == "call" else None
    if make is None or node.dtype != "float32" or node.arguments[1]:
        return None
    given = node.arguments[0]
    names = [each.name if isinstance(each, Ref) else each for each in given]
    return make(graph, node, names)


def _linear(graph: Graph, node: Node, given: list[Any]) -> Linear | None:
    x, weight, bias = (*given, None)[:3]
    last = len(node.shape) - 1
    if len(graph[weight].shape) != 2:
        return None
    depth = graph[weight].shape[1]
    return Linear(node, x, weight, bias, last, 0, frozenset(range(last)), depth, node.function, takes_bias=True)


def _product(graph: Graph, node: Node, given: list[Any]) -> Linear | None:
    """Describe a product of matrices, or of batches of matrices; None if a factor is a vector or the left one is
    broadcast. Batch axes that the right factor has as well are not free."""
    x, weight = given
    left, right, last = graph[x].shape, graph[weight].shape, len(node.shape) - 1
    if len(left) != len(node.shape) or min(len(left), len(right)) < 2:
        return None
    missing = len(left) - len(right)
    free = {axis for axis in range(last - 1) if axis < missing or right[axis - missing] == 1} | {last - 1}
    return Linear(node, x, weight, None, last, len(right) - 1, frozenset(free), left[-1], node.function)


def _addmm(graph: Graph, node: Node, given: list[Any]) -> Linear | None:
    if len(given) != 3:
        return None
    bias, x, weight = given
    return Linear(node, x, weight, bias, 1, 1, frozenset({0}), graph[x].shape[1], "aten.mm.default")


def _convolution(places: int) -> Callable[[Graph, Node, list[Any]], Linear | None]:
    def make(graph: Graph, node: Node, given: list[Any]) -> Linear | None:
        defaults: list[Any] = [None, None, None, [1] * places, [0] * places, [1] * places, 1]
        x, weight, bias, stride, padding, dilation, groups = [*given, *defaults[len(given) :]]
        if len(node.shape) != places + 2 or groups != 1:
            return None
        kernel = graph[weight].shape[2:]
        pointwise = all(size == 1 for size in (*kernel, *stride)) and not any(padding)
        free = {0, *(range(2, places + 2) if pointwise else ())}
        depth = math.prod(graph[weight].shape[1:])
        tail = (None, list(stride), list(padding), list(dilation), groups)
        return Linear(node, x, weight, bias, 1, 0, frozenset(free), depth, node.function, tail, kernel, takes_bias=True)

    return make


def _transposed(places: int) -> Callable[[Graph, Node, list[Any]], Linear | None]:
    def make(graph: Graph, node: Node, given: list[Any]) -> Linear | None:
        defaults: list[Any] = [None, None, None, [1] * places, [0] * places, [0] * places, 1, [1] * places]
        x, weight, bias, stride, padding, extra, groups, dilation = [*given, *defaults[len(given) :]]
        if len(node.shape) != places + 2 or groups != 1:
            return None
        kernel = graph[weight].shape[2:]
        depth = max(1, graph[weight].shape[0] * math.prod(kernel) // math.prod(stride))
        tail = (None, list(stride), list(padding), list(extra), groups, list(dilation))
        return Linear(node, x, weight, bias, 1, 1, frozenset({0}), depth, node.function, tail, kernel, takes_bias=True)

    return make


_KINDS: dict[str, Callable[[Graph, Node, list[Any]], Linear | None]] = {
    "aten.linear.default": _linear,
    "aten.matmul.default": _product,
    "aten.mm.default": _product,
    "aten.bmm.default": _product,
    "aten.addmm.default": _addmm,
    **{f"aten.conv{places}d.default": _convolution(places) for places in (1, 2, 3)},
    **{
        f"aten.conv_transpose{places}d.{'default' if places == 1 else 'input'}": _transposed(places)
        for places in (1, 2, 3)
    },
}
