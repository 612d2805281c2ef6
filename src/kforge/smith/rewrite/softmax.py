"""Softmax and what people put around it.

log(softmax(x)) stays what it is, and so does log(exp(x)): where exp gives zero or infinity the module's result is
infinite, in any precision, and that of the shorter form is not, so the evaluator rightly calls it another function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.rewrite.rule import constant_along, node_rule

if TYPE_CHECKING:
    from kforge.smith.graph import Graph, Node, Operand
    from kforge.smith.rewrite.rule import Site


def _map(graph: Graph, operand: Operand | None, function: str) -> Node | None:
    node = graph[operand] if isinstance(operand, str) else None
    return node if node is not None and node.kind == "map" and node.function == function else None


def _below_its_maximum(graph: Graph, node: Node | None) -> Node | None:
    """The reduction in `z - max(z)`."""
    if node is None or node.kind != "map" or node.function != "sub" or not isinstance(node.inputs[1], str):
        return None
    top = graph[node.inputs[1]]
    return top if top.kind == "reduce" and top.function == "max" and top.inputs[0] == node.inputs[0] else None


@node_rule(
    "shift before a softmax",
    when="(x + c) - max(x + c), c being constant along the axis: the beginning of every softmax",
    saves="the shift, and what only it needs",
    algebraic=True,
)
def shift_before_softmax(site: Site) -> Operand | None:
    graph, top = site.graph, _below_its_maximum(site.graph, site.node)
    if top is None or not site.alone(top.name):
        return None
    shifted = graph[top.sources[0]]
    # besides the maximum, this node reads it: two readers are all
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
    when="max(exp(z - max(z)) / s) along the same axes, s being constant along them: 1 / s",
    saves="the pass that looks for it: where z is largest, exp(z - max(z)) is one",
    algebraic=True,
)
def largest_of_softmax(site: Site) -> Operand | None:
    node, graph = site.node, site.graph
    if node.kind != "reduce" or node.function != "max":
        return None
    quotient = _map(graph, node.inputs[0], "div")
    grown = _map(graph, quotient.inputs[0], "exp") if quotient is not None else None
    top = _below_its_maximum(graph, _map(graph, grown.inputs[0], "sub")) if grown is not None else None
    if quotient is None or grown is None or top is None or top.axes != node.axes:
        return None
    total = graph[quotient.inputs[1]] if isinstance(quotient.inputs[1], str) else None
    # s must be positive for the largest to stay the largest: the sum of what exp gives is
    fits = total is not None and total.kind == "reduce" and total.function == "sum" and total.inputs[0] == grown.name
    return site.builder.map("div", 1.0, total.name) if fits and total.axes == node.axes else None  # type: ignore[union-attr]


SOFTMAX = (shift_before_softmax, largest_of_softmax)
