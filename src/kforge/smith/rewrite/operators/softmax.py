"""Simplifies softmax and common operators around it.

log(softmax(x)) and log(exp(x)) are not simplified. If exp gives zero or infinity, the module's result is infinite in
any precision, but the result of the shorter form is not. The evaluator would rightly call that a different function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.rewrite.rule import constant_along, node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Graph, Node, Operand
    from kforge.smith.rewrite.rule import Site


def _map(graph: Graph, operand: Operand | None, function: str) -> Node | None:
    node = graph[operand] if isinstance(operand, str) else None
    return node if node is not None and node.kind == "map" and node.function == function else None


def _below_its_maximum(graph: Graph, node: Node | None) -> Node | None:
    """Return the node of the maximum if this node is `z - max(z)`; otherwise None."""
    if node is None or node.kind != "map" or node.function != "sub" or not isinstance(node.inputs[1], str):
        return None
    top = graph[node.inputs[1]]
    return top if top.kind == "reduce" and top.function == "max" and top.inputs[0] == node.inputs[0] else None


@node_rule(
    "shift before a softmax",
    when="(x + c) - max(x + c), where c is constant along the axis; every softmax begins with this",
    saves="the shift, and all work that only the shift needs",
    algebraic=True,
)
def shift_before_softmax(site: Site) -> Operand | None:
    graph, top = site.graph, _below_its_maximum(site.graph, site.node)
    if top is None or not site.alone(top.name):
        return None
    shifted = graph[top.sources[0]]
    # only the maximum and this node read it
    if shifted.name in graph.outputs or len(site.readers[shifted.name]) != 2 or shifted.kind != "map":
        return None
    b, within = site.builder, shifted.shape

    def only_shifts(operand: Operand) -> bool:
        return not isinstance(operand, str) or constant_along(top.axes, b.shape(operand), within)

    match shifted.function, shifted.inputs:
        case (("add" | "sub"), (str(x), c)) if only_shifts(c) and b.shape(x) == within:
            return b.map("sub", x, b.reduce("max", x, top.axes))
        case "add", (c, str(x)) if only_shifts(c) and b.shape(x) == within:
            return b.map("sub", x, b.reduce("max", x, top.axes))
    return None


@node_rule(
    "largest of a softmax",
    when="max(exp(z - max(z)) / s) along the same axes, where s is the sum along them; the result is 1 / s",
    saves="the pass that searches for the maximum: exp(z - max(z)) is 1 at the largest z",
    algebraic=True,
)
def largest_of_softmax(site: Site) -> Operand | None:
    node, graph = site.node, site.graph
    if node.kind != "reduce" or node.function != "max":
        return None
    parts = _softmax(graph, graph[node.sources[0]])
    # the sum of exponentials is positive, so the largest element stays the largest
    return site.builder.map("div", 1.0, parts[1].name) if parts is not None and parts[1].axes == node.axes else None


def _softmax(graph: Graph, quotient: Node) -> tuple[Node, Node] | None:
    """Return the nodes of `exp(z - max(z))` and of its sum if `quotient` divides the first by the second; otherwise
    None."""
    if quotient.kind != "map" or quotient.function != "div":
        return None
    grown = _map(graph, quotient.inputs[0], "exp")
    top = _below_its_maximum(graph, _map(graph, grown.inputs[0], "sub")) if grown is not None else None
    total = graph[quotient.inputs[1]] if isinstance(quotient.inputs[1], str) else None
    if grown is None or top is None or total is None or total.inputs != (grown.name,):
        return None
    return (grown, total) if (total.kind, total.function, total.axes) == ("reduce", "sum", top.axes) else None


@node_rule(
    "softmax that is summed",
    when="c * softmax(z), or softmax(z) / c, is summed along the axes of the softmax, and nothing else reads it",
    saves="the division of every element, and the pass that must wait for the divisor",
)
def summed_softmax(site: Site) -> Operand | None:
    """Divide after the sum instead of before. The exponentials are at most 1 and their sum is at least 1, so no product
    overflows."""
    node, b = site.node, site.builder
    if node.kind != "reduce" or node.function != "sum" or node.dtype != "float32":
        return None
    product = site.graph[node.sources[0]]
    for name in (product.name, *product.sources):
        parts = _softmax(site.graph, site.graph[name])
        if parts is None or parts[1].axes != node.axes or not _is_only_summed(site, name, node.axes):
            continue
        grown, total = (each.name for each in parts)
        if name == product.name:
            value = grown
        else:
            value = b.map(product.function, *(grown if each == name else each for each in product.inputs))
        return b.map("div", b.reduce("sum", value, node.axes), total)
    return None


def _is_only_summed(site: Site, name: str, axes: tuple[int, ...], factors: int = 1) -> bool:
    """Return whether all readers of the node are sums along these axes, with at most `factors` maps that multiply or
    divide in between."""
    if name in site.graph.outputs:
        return False
    for reader in site.readers[name]:
        is_sum = (reader.kind, reader.function, reader.axes) == ("reduce", "sum", axes)
        factor = reader.kind == "map" and (reader.function, reader.inputs[0]) == ("div", name)
        factor = (factor or (reader.kind, reader.function) == ("map", "mul")) and reader.inputs.count(name) == 1
        same = reader.shape == site.graph[name].shape
        if not is_sum and not (factors and factor and same and _is_only_summed(site, reader.name, axes, factors - 1)):
            return False
    return True


SOFTMAX = (shift_before_softmax, largest_of_softmax, summed_softmax)
