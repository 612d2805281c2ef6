"""Moves sums before linear calls: the sum of a linear layer's outputs is a product with the sum of its weights.

Means are included, since a mean is a sum and a division. A sum is moved through additions and factors only if it can
reach a linear call; otherwise the move would only change the rounding.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.smith.rewrite.linear import Linear, linear_of
from kforge.smith.rewrite.rule import Site, aligned, axes_before, constant_along, node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Builder, Node, Operand, Shape


def summed(builder: Builder, operand: Operand, axes: tuple[int, ...], within: Shape) -> Operand:
    """Return the sum, along these axes of the shape `within`, of an operand that is broadcast to that shape. The
    operand is not expanded for it."""
    shape = builder.shape(operand)
    own = [axis for axis in aligned(axes, shape, within) if shape[axis] != 1]
    missing = len(within) - len(shape)
    count = math.prod(within[axis] for axis in axes if axis - missing not in own)
    if not isinstance(operand, str):
        return operand * count
    result = builder.reduce("sum", operand, own)
    return result if count == 1 else builder.map("mul", result, float(count))


def sum_of(site: Site) -> Node | None:
    """Return the operand of a float32 sum, if nothing else reads the operand. None for other nodes."""
    node, source = site.node, site.source()
    fits = node.kind == "reduce" and node.function == "sum" and node.dtype == "float32"
    return source if fits and source is not None and site.alone(source.name) else None


def _with_bias(site: Site, linear: Linear, value: str, axes: tuple[int, ...]) -> str:
    bias = linear.bias_in_place(site.builder)
    if bias is None:
        return value
    return site.builder.map("add", value, summed(site.builder, bias, axes, linear.node.shape))


@node_rule(
    "sum of features",
    when="a linear layer, matmul or convolution is summed over its output features",
    saves="computing every feature: the weights are summed first, and one feature is computed",
    algebraic=True,
)
def sum_of_features(site: Site) -> Operand | None:
    source, axes = sum_of(site), site.node.axes
    linear = linear_of(site.graph, source) if source is not None else None
    if linear is None or linear.features not in axes:
        return None
    b, weight, count = site.builder, site.graph[linear.weight], linear.node.shape[linear.features]
    if weight.size + linear.cost // count > linear.cost:  # a single row: nothing is saved
        return None
    if linear.is_product:  # one pass over x, which a kernel can share with the nodes after it
        row = b.reduce("sum", linear.rows(b), (len(weight.shape) - 2,))
        row = row if len(b.shape(linear.x)) > 1 else b.reshape(row, b.shape(row)[-1:])
        total = b.reduce("sum", b.map("mul", linear.x, row), axes)
    else:
        narrow = linear.again(b, linear.x, b.reduce("sum", linear.weight, (linear.weight_axis,)))
        total = b.reduce("sum", narrow, [axis for axis in axes if axis != linear.features])
    return _with_bias(site, linear, total, axes)


@node_rule(
    "sum of groups of features",
    when="the features of a linear layer or matmul are reshaped into groups, and each group is summed",
    saves="computing every feature: the weights are summed first, and one feature per group is computed",
    algebraic=True,
)
def sum_of_groups(site: Site) -> Operand | None:
    source, b = sum_of(site), site.builder
    if source is None or source.kind != "view" or source.function != "reshape":
        return None
    inner = site.graph[source.sources[0]]
    linear, lead = linear_of(site.graph, inner), len(inner.shape) - 1
    if linear is None or not linear.is_product or linear.features != lead or not site.alone(inner.name):
        return None
    groups, summed_axes = source.shape[lead:], [axis - lead for axis in site.node.axes]
    bias = linear.bias_in_place(b)
    flat = bias is None or math.prod(b.shape(bias)) == inner.shape[-1]
    if source.shape[:lead] != inner.shape[:-1] or min(summed_axes) < 0 or not flat or lead == 0:
        return None
    shape, at = b.shape(linear.weight), linear.weight_axis % len(b.shape(linear.weight))
    left = math.prod(size for axis, size in enumerate(groups) if axis not in summed_axes)
    if linear.cost < 2 * math.prod(shape) or left == inner.shape[-1]:
        return None
    split = b.reshape(linear.weight, (*shape[:at], *groups, *shape[at + 1 :]))
    narrow = b.reduce("sum", split, [at + axis for axis in summed_axes])
    weight = b.reshape(narrow, (*shape[:at], left, *shape[at + 1 :]))
    value = b.reshape(linear.again(b, linear.x, weight), site.node.shape)
    if bias is None:
        return value
    return b.map("add", value, b.reduce("sum", b.reshape(bias, groups), summed_axes))


@node_rule(
    "sum of rows",
    when="a linear layer, matmul or convolution is summed over an axis of x that passes through it unchanged",
    saves="computing every row (or every position of a 1x1 convolution): the rows of x are summed first",
    algebraic=True,
)
def sum_of_rows(site: Site) -> Operand | None:
    source, axes = sum_of(site), site.node.axes
    linear = linear_of(site.graph, source) if source is not None else None
    if linear is None:
        return None
    b, free = site.builder, [axis for axis in axes if axis in linear.free]
    if math.prod(linear.node.shape[axis] for axis in free) == 1:
        return None
    after = linear.again(b, b.reduce("sum", linear.x, free), linear.weight)
    total = b.reduce("sum", after, [axis for axis in axes if axis not in free])
    return _with_bias(site, linear, total, axes)


def leads_to_linear(site: Site, operand: Operand) -> bool:
    """Return whether the operand is a linear call, or is computed from one by additions, factors, sums and views that
    nothing else reads."""
    if not isinstance(operand, str) or not site.alone(operand):
        return False
    node = site.graph[operand]
    if linear_of(site.graph, node) is not None:
        return True
    passes = node.function in ("reshape", "permute") or (
        node.kind == "map" and node.function in ("add", "sub", "mul", "div", "neg")
    )
    adds = node.kind == "reduce" and node.function == "sum"
    return (passes or adds) and any(leads_to_linear(site, each) for each in node.inputs)


@node_rule(
    "sum of a sum or multiple",
    when="x + y, -x, x * c or x / c is summed, where c is constant along the axes and x leads to a linear call",
    saves="nothing by itself: the sum moves closer to the linear call",
)
def sum_of_maps(site: Site) -> Operand | None:
    source, axes = sum_of(site), site.node.axes
    if source is None or source.kind != "map" or source.dtype != "float32":
        return None
    b, inputs, within = site.builder, source.inputs, source.shape
    leads = [leads_to_linear(site, each) for each in inputs]
    if source.function in ("add", "sub", "neg") and any(leads):
        return b.map(source.function, *(summed(b, each, axes, within) for each in inputs))
    constant = [constant_along(axes, b.shape(each), within) for each in inputs]
    match source.function, leads, constant:
        case (("mul" | "div"), [True, _], [_, True]):
            return b.map(source.function, summed(b, inputs[0], axes, within), inputs[1])
        case "mul", [_, True], [True, _]:
            return b.map("mul", inputs[0], summed(b, inputs[1], axes, within))
    return None


@node_rule(
    "sum of a view",
    when="whole axes of a reshaped or permuted linear call are summed",
    saves="nothing by itself: the sum moves closer to the linear call",
)
def sum_of_view(site: Site) -> Operand | None:
    source = sum_of(site)
    if source is None or source.kind != "view" or source.function == "slice":
        return None
    if not leads_to_linear(site, source.sources[0]):
        return None
    b, inner, axes = site.builder, source.sources[0], site.node.axes
    if source.function == "permute":
        return b.permute(b.reduce("sum", inner, [source.axes[axis] for axis in axes]), source.axes)
    before = axes_before(b.shape(inner), source.shape, axes)
    if before is None:
        return None
    return b.reshape(b.reduce("sum", inner, before), site.node.shape)


SUMS = (sum_of_features, sum_of_groups, sum_of_rows, sum_of_maps, sum_of_view)
