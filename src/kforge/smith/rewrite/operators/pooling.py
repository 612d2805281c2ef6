"""Rewrites average pooling as a mean, and moves it before a convolution if the result stays the same.

Before a 1x1 convolution that is always possible. With a larger window, some taps reach beyond the border of x, so that
they see fewer elements than the middle tap. But each tap sees a box of x: all of x, or x without a few lines at the
borders. So the sum over all outputs is a sum over the taps: the tap's weight times the sum of the tap's box.

Pooling of an upsampled tensor, whose elements are copies, is pooling of the smaller tensor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kforge.smith.ir.graph import Ref
from kforge.smith.ir.windows import Window
from kforge.smith.rewrite.linear import Linear, linear_of
from kforge.smith.rewrite.rule import node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Builder, Node, Operand
    from kforge.smith.rewrite.rule import Site

MOST_TAPS = 9
"""Most taps of a window along one axis. With larger windows, the border regions are no longer small."""


def _pooling(node: Node) -> tuple[int, bool] | None:
    """Return the number of pooled axes, and whether they are pooled to size one, for an average pooling whose windows
    lie inside x. None for other nodes."""
    name = node.function.removeprefix("aten.").removesuffix(".default")
    kind = name[:-2]
    if node.kind != "call" or kind not in ("adaptive_avg_pool", "avg_pool") or node.dtype != "float32":
        return None
    places, given = int(name[-2]), node.arguments[0]
    if kind == "avg_pool":
        padding, ceil, divisor = ([*given, *[None] * 7][i] for i in (3, 4, 6))
        if any(padding or ()) or ceil or divisor or node.arguments[1]:
            return None
    return places, all(size == 1 for size in node.shape[-places:])


@node_rule(
    "global pooling",
    when="average pooling to one element per channel",
    saves="nothing by itself: it is a mean, which can be fused or moved",
)
def global_pooling(site: Site) -> Operand | None:
    pooling, source = _pooling(site.node), site.source()
    if pooling is None or source is None or not pooling[1]:
        return None
    axes = range(len(source.shape) - pooling[0], len(source.shape))
    covered = _window(site.node, pooling[0])
    if covered is not None and covered != list(source.shape[-pooling[0] :]):
        return None  # one window, but it does not cover all elements
    b, count = site.builder, math.prod(source.shape[axis] for axis in axes)
    return b.map("div", b.reduce("sum", source.name, axes), float(count))


def _window(node: Node, places: int) -> list[int] | None:
    """Return the window of avg_pool, or None for adaptive pooling, which covers all elements."""
    if "adaptive" in node.function:
        return None
    given = node.arguments[0][1]
    return list(given) * (places if len(given) == 1 else 1)


@node_rule(
    "pooling before a convolution",
    when="average pooling, to more than one element per channel, of a 1x1 convolution",
    saves="computing the convolution at every position: it is computed only at the pooled ones",
    algebraic=True,
)
def pooling_before_convolution(site: Site) -> Operand | None:
    node, source, pooling = site.node, site.source(), _pooling(site.node)
    if pooling is None or source is None or not site.alone(source.name) or node.size >= source.size:
        return None
    linear = linear_of(site.graph, source)
    if linear is None or not set(range(2, len(source.shape))) <= linear.free or linear.is_product:
        return None
    b, (_, *rest) = site.builder, node.arguments[0]
    shape = (*b.shape(linear.x)[:2], *node.shape[2:])
    pooled = b.call(
        node.origin or "pool", node.function, ([Ref(linear.x), *rest], node.arguments[1]), shape, node.dtype
    )
    return linear.again(b, pooled, linear.weight, linear.bias)


def _enlarged(node: Node) -> tuple[str, tuple[int, ...]] | None:
    """Return the tensor before nearest-neighbour upsampling, and the sizes after it. None for other nodes."""
    packet = node.function.removeprefix("aten.").partition(".")[0]
    if node.kind != "call" or packet not in ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"):
        return None
    return node.sources[0], node.shape[2:]


@node_rule(
    "pooling of copies",
    when="pooling of a tensor upsampled by a power of two, with windows that cover whole groups of copies",
    saves="the copies: the small tensor is pooled by smaller windows, or is the result itself",
    algebraic=True,
)
def pooling_of_copies(site: Site) -> Operand | None:
    node, source, b = site.node, site.source(), site.builder
    packet = node.function.removeprefix("aten.").partition(".")[0]
    enlarged = _enlarged(source) if source is not None else None
    if source is None or enlarged is None or packet[:-2] not in ("max_pool", "avg_pool"):
        return None
    (x, places), (_, *given) = enlarged, node.arguments[0]
    window = Window.pooling(packet, source.shape, node.shape, given, node.arguments[1])
    if window is None or any(window.padding) or set(window.dilation) != {1}:
        return None
    small = []
    for size, large, *spans in zip(b.shape(x)[2:], places, window.kernel_size, window.stride, strict=True):
        times = large // size
        # torch multiplies by one over the scale, which is exact for powers of two only
        if large % size or times & (times - 1) or any(span % times for span in spans):
            return None
        small.append([span // times for span in spans])
    windows, strides = ([span[each] for span in small] for each in (0, 1))
    if set(windows) == set(strides) == {1}:
        return x
    arguments: Any = ([Ref(x), windows, strides], {})
    return b.call(node.origin or "pool", node.function, arguments, node.shape, node.dtype)


# --- the sum over all places of a convolution -------------------------------------------------------------------------

Range = tuple[int, int]


def _met(linear: Linear, axis: int, size: int) -> list[Range] | None:
    """Return, for each tap, the first index and the end of the elements of x that it sees along one axis. None if they
    are not contiguous."""
    out, taps = linear.node.shape[axis + 2], linear.kernel[axis]
    stride, padding, dilation = (
        linear.tail[1][axis],
        linear.tail[2][axis],
        linear.tail[-1 if _is_transposed(linear) else 3][axis],
    )
    if _is_transposed(linear):  # input i contributes to output i*stride - padding + tap*dilation
        starts = [padding - tap * dilation for tap in range(taps)]
        return [(max(0, -(-start // stride)), min(size, (out - 1 + start) // stride + 1)) for start in starts]
    if stride != 1:
        return None
    starts = [tap * dilation - padding for tap in range(taps)]
    return [(max(0, start), min(size, start + out)) for start in starts]


def _is_transposed(linear: Linear) -> bool:
    return "transpose" in linear.function


def _box_sums(b: Builder, x: str, axis: int, met: list[Range]) -> str:
    """Return the sums of x along an axis over the range that each tap sees, joined along the axis. Each is the whole
    sum minus the sums at the borders."""
    shape = b.shape(x)
    size, whole = shape[axis], b.reduce("sum", x, (axis,))

    def part(first: int, last: int) -> str:
        cut = (*shape[:axis], last - first, *shape[axis + 1 :])
        arguments: Any = ([Ref(x), axis, first, last], {})
        return b.reduce("sum", b.call("border", "aten.slice.Tensor", arguments, cut, "float32"), (axis,))

    sums: dict[Range, str] = {}
    for first, last in met:
        value = whole
        if (first, last) in sums:
            continue
        if first > 0:
            value = b.map("sub", value, part(0, first))
        if last < size:
            value = b.map("sub", value, part(last, size))
        sums[first, last] = value
    if len(met) == 1:
        return sums[met[0]]
    arguments: Any = ([[Ref(sums[each]) for each in met], axis], {})
    beside = (*shape[:axis], len(met), *shape[axis + 1 :])
    return b.call("boxes", "aten.cat.default", arguments, beside, "float32")


@node_rule(
    "sum of places",
    when="a convolution with stride 1, or any transposed convolution, is summed over all its positions",
    saves="the convolution: x is summed once, and the weights are multiplied by these sums",
    algebraic=True,
)
def sum_of_places(site: Site) -> Operand | None:
    node, source = site.node, site.source()
    if node.kind != "reduce" or node.function != "sum" or source is None or not site.alone(source.name):
        return None
    linear = linear_of(site.graph, source)
    places = range(2, len(source.shape))
    if linear is None or linear.is_product or not set(places) <= set(node.axes) or max(linear.kernel) > MOST_TAPS:
        return None
    b, value = site.builder, linear.x
    for axis in reversed(places):
        size = b.shape(value)[axis]
        met = _met(linear, axis - 2, size)
        if met is None or any(last - first <= size // 2 for first, last in met):
            return None
        value = _box_sums(b, value, axis, met)
    batch, channels = source.shape[:2]
    depth = math.prod(b.shape(value)[1:])
    weight = linear.weight
    if _is_transposed(linear):
        weight = b.permute(weight, (1, 0, *places))
    arguments: Any = ([Ref(b.reshape(value, (batch, depth))), Ref(b.reshape(weight, (channels, depth)))], {})
    total = b.call("sums", "aten.linear.default", arguments, (batch, channels), "float32")
    total = b.reshape(total, (batch, channels, *([1] * len(places))))
    bias = linear.bias_in_place(b)
    if bias is not None:
        total = b.map("add", total, b.map("mul", bias, float(math.prod(source.shape[2:]))))
    return b.reduce("sum", total, [axis for axis in node.axes if axis < 2])


POOLING = (global_pooling, pooling_of_copies, pooling_before_convolution)
PLACES = (sum_of_places,)
