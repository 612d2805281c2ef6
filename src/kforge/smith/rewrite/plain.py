"""Rules that remove unused nodes, duplicates, and operations that change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kforge.smith.ir.interpret import operator_of
from kforge.smith.rewrite.rule import Rule, node_rule, substituted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kforge.smith.ir.graph import Graph, Node, Operand, Shape
    from kforge.smith.rewrite.rule import Site


def _without_dead(graph: Graph) -> Graph | None:
    live = graph.live()
    return live if len(live.nodes) < len(graph.nodes) else None


dead_work = Rule("dead work", "no output depends on a node", "everything that only this node needs", _without_dead)


def _without_doubles(graph: Graph) -> Graph | None:
    """Return the graph with equal nodes merged, or None if there are none. Nodes are merged in order, so that nodes
    that read equal nodes become equal themselves."""
    first: dict[str, str] = {}
    instead: dict[str, Operand] = {}
    for node in graph:
        if node.kind in ("input", "parameter") or _draws(node):
            continue
        inputs = tuple(instead.get(each, each) if isinstance(each, str) else each for each in node.inputs)
        # compared as text, in which 1, 1.0 and True differ, as do -0.0 and 0.0
        arguments = _plain(node.arguments, instead)
        key = repr((node.kind, node.function, inputs, node.shape, node.dtype, node.axes, arguments))
        if key in first:
            instead[node.name] = first[key]
        else:
            first[key] = node.name
    return substituted(graph, instead) if instead else None


def _plain(arguments: object, instead: Mapping[str, Operand]) -> str:
    text = repr(arguments)
    for name, other in instead.items():
        text = text.replace(f"Ref(name={name!r})", f"Ref(name={other!r})")
    return text


def _draws(node: Node) -> bool:
    """Return whether the call's result differs from call to call: random numbers, or uninitialized memory."""
    if node.kind != "call":
        return False
    drawn = torch.Tag.nondeterministic_seeded in getattr(operator_of(node.function), "tags", ())
    return drawn or "empty" in node.function


common_subexpressions = Rule(
    "common subexpressions", "two nodes do the same to the same operands", "the second of them", _without_doubles
)


@node_rule("neutral operand", when="x*1, x/1, x+0, x-0", saves="one operation per element")
def neutral_operand(site: Site) -> Operand | None:
    match site.node.kind, site.node.function, site.node.inputs:
        case "map", ("mul" | "div"), (str(x), 1):
            return x
        case "map", ("add" | "sub"), (str(x), 0):
            return x
        case "map", "mul", (1, str(x)):
            return x
        case "map", "add", (0, str(x)):
            return x
    return None


@node_rule("double negation", when="neg of neg, not of not", saves="two operations per element")
def double_negation(site: Site) -> Operand | None:
    source = site.source()
    if site.node.kind != "map" or site.node.function not in ("neg", "not") or source is None:
        return None
    same = source.kind == "map" and source.function == site.node.function
    return source.inputs[0] if same else None


@node_rule("negated condition", when="where(not c, x, y)", saves="one operation per element, or a separate kernel")
def negated_condition(site: Site) -> Operand | None:
    condition = site.source()
    if site.node.kind != "map" or site.node.function != "where" or condition is None or condition.function != "not":
        return None
    _, then, otherwise = site.node.inputs
    return site.builder.map("where", condition.inputs[0], otherwise, then, dtype=site.node.dtype)


_NEVER_NEGATIVE = frozenset({"abs", "exp", "sigmoid", "sqrt", "rsqrt"})


def never_negative(graph: Graph, operand: Operand, steps: int = 4) -> bool:
    """Return whether the operations that compute the value, up to `steps` back, guarantee that it is not negative. It
    may be NaN."""
    if not isinstance(operand, str):
        return operand >= 0
    node = graph[operand]
    if steps == 0 or node.kind not in ("map", "reduce", "view"):
        return False
    parts = [never_negative(graph, each, steps - 1) for each in node.inputs]
    match node.function:
        case "maximum":
            return any(parts)
        case "mul":
            return all(parts) or node.inputs[0] == node.inputs[1]
        case "add" | "div" | "minimum" | "sum" | "max" | "min" | "prod" | "reshape" | "permute":
            return all(parts)
    return node.function in _NEVER_NEGATIVE


@node_rule(
    "operation without effect",
    when="relu or abs of a value that is never negative, abs of neg, max(x, x)",
    saves="an operation",
)
def operation_without_effect(site: Site) -> Operand | None:
    match site.node.kind, site.node.function, site.node.inputs:
        case "map", "abs", (str(x),) if never_negative(site.graph, x):
            return x
        case "map", "abs", (str(x),):
            source = site.graph[x]
            negated = source.kind == "map" and source.function == "neg"
            return site.builder.map("abs", source.inputs[0]) if negated else None
        case "map", "maximum", (str(x), 0) if never_negative(site.graph, x):
            return x
        case "map", ("maximum" | "minimum"), (str(x), y) if x == y:
            return x
    return None


@node_rule("view of a view", when="reshape of reshape, permute of permute", saves="a view, or a copy")
def view_of_view(site: Site) -> Operand | None:
    node, source = site.node, site.source()
    if node.kind != "view" or source is None:
        return None
    if node.function == "reshape":
        return site.builder.reshape(source.name, node.shape) if _reshapes(node, source) else None
    if node.function == "slice":
        return None
    if source.kind == "view" and source.function == "permute":
        return site.builder.permute(source.sources[0], [source.axes[axis] for axis in node.axes])
    return source.name if node.axes == tuple(range(len(node.axes))) else None


def _reshapes(node: Node, source: Node) -> bool:
    return node.shape == source.shape or (source.kind == "view" and source.function == "reshape")


@node_rule(
    "reshape later",
    when="a map reads a reshaped value, and its other operands can be viewed in the shape before the reshape, too",
    saves="a separate kernel: a reshape keeps nodes from sharing one",
)
def reshape_later(site: Site) -> Operand | None:
    node = site.node
    if node.kind != "map":
        return None
    views = [site.graph[name] for name in node.sources if _is_reshape(site.graph[name]) and _made(site, name)]
    inner = site.graph[views[0].sources[0]].shape if views else ()
    if not views or views[0].shape != node.shape:
        return None
    operands = [_under(site, each, inner) for each in node.inputs]
    if any(each is None for each in operands):
        return None
    value = site.builder.map(node.function, *(each for each in operands if each is not None), dtype=node.dtype)
    return site.builder.reshape(value, node.shape)


def _is_reshape(node: Node) -> bool:
    return node.kind == "view" and node.function == "reshape"


def _made(site: Site, name: str) -> bool:
    """Return whether a kernel computes the source of this view."""
    return site.graph[site.graph[name].sources[0]].kind in ("map", "reduce")


def _under(site: Site, operand: Operand, shape: Shape) -> Operand | None:
    """Return an operand of the map in this shape. None if that would need a copy, or if another kernel computes the
    operand."""
    outer = site.node.shape
    if not isinstance(operand, str):
        return operand
    own = site.graph[operand]
    if own.kind in ("map", "reduce"):  # the reshape would only move to before that node
        return None
    if own.shape == outer:
        return site.builder.reshape(operand, shape)
    if own.size == 1:
        return site.builder.reshape(operand, ())
    if [size for size in shape if size != 1] != [size for size in outer if size != 1]:
        return None
    # only axes of size one are added or removed, so all other axes correspond
    padded = (1,) * (len(outer) - len(own.shape)) + own.shape
    sizes = iter([size for size, whole in zip(padded, outer, strict=True) if whole != 1])
    return site.builder.reshape(operand, tuple(1 if size == 1 else next(sizes) for size in shape))


@node_rule("reduction of a reduction", when="sum of a sum, max of a max …", saves="a pass, and a kernel of its own")
def reduction_of_reduction(site: Site) -> Operand | None:
    node, source = site.node, site.source()
    if node.kind != "reduce" or source is None or source.kind != "reduce" or source.function != node.function:
        return None
    if not site.alone(source.name):
        return None
    return site.builder.reduce(node.function, source.sources[0], {*node.axes, *source.axes})


PLAIN = (
    dead_work,
    common_subexpressions,
    neutral_operand,
    double_negation,
    negated_condition,
    operation_without_effect,
    view_of_view,
    reshape_later,
    reduction_of_reduction,
)
