"""Moves a factor and a shift per output feature into the weights, if no kernel passes over the data anyway.

A batch norm after a convolution is an example. If a kernel does pass over the data, the shift costs nothing there, and
another rule moves the bias into that kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.rewrite.linear import Linear, linear_of
from kforge.smith.rewrite.rule import constant_along, is_number, node_rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kforge.smith.ir.graph import Builder, Graph, Node, Operand
    from kforge.smith.rewrite.rule import Site


def _from_parameters(graph: Graph, operand: Operand) -> bool:
    """Return whether the value depends on parameters only, and not on the inputs."""
    if not isinstance(operand, str):
        return is_number(operand)
    seen, waiting = {operand}, [graph[operand]]
    while waiting:
        node = waiting.pop()
        if node.kind not in ("parameter", "map", "reduce", "view"):
            return False
        waiting += [graph[each] for each in node.sources if each not in seen]
        seen.update(node.sources)
    return True


def _in_kernels(site: Site, name: str) -> Iterable[bool]:
    """Yield, for each reader of the node (also through views), whether it is a kernel. A kernel can apply a shift at no
    cost."""
    if name in site.graph.outputs:
        yield False
    for reader in site.readers[name]:
        if reader.kind == "view":
            yield from _in_kernels(site, reader.name)
        else:
            yield reader.kind in ("map", "reduce", "scan")


def _chain(site: Site) -> tuple[Linear, list[tuple[Node, int]]] | None:
    """Return the linear call below this node, and the maps between them, innermost first, each with the position of its
    input from the call. None if there is no such chain."""
    steps: list[tuple[Node, int]] = []
    node = site.node
    while node.kind == "map" and node.function in ("add", "sub", "mul", "div"):
        sides = [place for place in (0, 1) if _from_parameters(site.graph, node.inputs[1 - place])]
        inner = node.inputs[sides[0]] if len(sides) == 1 else None
        if not isinstance(inner, str) or not site.alone(inner) or (node.function == "div" and sides[0] == 1):
            return None
        steps.insert(0, (node, sides[0]))
        node = site.graph[inner]
    linear = linear_of(site.graph, node)
    return (linear, steps) if linear is not None and steps else None


def _per_feature(b: Builder, linear: Linear, operand: Operand) -> Operand | None:
    """Return a factor or shift as one number for all features, or as a vector with one number per feature. None if it
    varies along another axis."""
    shape, within = b.shape(operand), linear.node.shape
    others = tuple(axis for axis in range(len(within)) if axis != linear.features)
    if not isinstance(operand, str):
        return operand
    if len(shape) > len(within) or not constant_along(others, shape, within):
        return None
    return b.reshape(operand, (b.nodes[operand].size,))


@node_rule(
    "scale into weights",
    when="the output of a linear layer or convolution is scaled and shifted per feature, and no kernel reads it",
    saves="a pass over the data, at the cost of a pass over the weights, which are fewer",
    algebraic=True,
)
def scale_into_weights(site: Site) -> Operand | None:
    found = _chain(site) if site.node.kind == "map" and not any(_in_kernels(site, site.node.name)) else None
    if found is None or not found[0].takes_bias or site.node.shape != found[0].node.shape:
        return None
    (linear, steps), b = found, site.builder
    weight, bias = linear.weight, linear.bias
    if b.nodes[weight].size >= site.node.size:
        return None
    rank, features = len(b.shape(weight)), linear.node.shape[linear.features]
    lengthwise = (*([1] * linear.weight_axis), -1, *([1] * (rank - 1 - linear.weight_axis)))
    for node, place in steps:
        c = _per_feature(b, linear, node.inputs[1 - place])
        if c is None:
            return None
        if node.function in ("mul", "div"):
            size = 1 if not isinstance(c, str) else b.nodes[c].size
            along = (
                b.reshape(c, tuple(size if each == -1 else each for each in lengthwise)) if isinstance(c, str) else c
            )
            weight = b.map(node.function, weight, along)
            bias = None if bias is None else b.map(node.function, bias, c)
        elif place == 1 and node.function == "sub":  # c - y
            weight = b.map("neg", weight)
            bias = b.map("sub", c, bias) if bias is not None else c if isinstance(c, str) else None
        elif bias is not None:
            bias = b.map(node.function, bias, c)
        else:
            bias = None if not isinstance(c, str) else c if node.function == "add" else b.map("neg", c)
        if bias is None and node.function in ("add", "sub"):
            return None  # a single number cannot be a bias
    if bias is not None and b.shape(bias) != (features,):
        return None
    return linear.again(b, linear.x, weight, bias)


@node_rule(
    "bias into kernels",
    when="a matrix product has a bias, and only kernels read its result",
    saves="the library's pass that copies the bias into the result before it multiplies",
)
def bias_into_kernels(site: Site) -> Operand | None:
    """Move a bias from the matrix product into the kernel that reads its result. For hosts, whose library would copy
    the bias into the result and read it again while it multiplies."""
    linear = linear_of(site.graph, site.node)
    if linear is None or not linear.is_product or not all(_in_kernels(site, site.node.name)):
        return None
    b = site.builder
    bias = linear.bias_in_place(b)
    return None if bias is None else b.map("add", linear.again(b, linear.x, linear.weight), bias)


WEIGHTS = (scale_into_weights,)
