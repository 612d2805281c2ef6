"""Replaces attention that is written as two matrix products with a softmax between them by one call of torch's
attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kforge.smith.ir.graph import Ref
from kforge.smith.rewrite.rule import is_number, node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Graph, Node, Operand
    from kforge.smith.rewrite.rule import Site


def _matmul(node: Node | None) -> tuple[str, str] | None:
    """Return the names of both factors of a float32 product of shape [batch, head, position, channel]. None for other
    nodes."""
    fits = node is not None and node.function == "aten.matmul.default" and len(node.shape) == 4
    if node is None or not fits or node.dtype != "float32":
        return None
    left, right = node.arguments[0]
    return left.name, right.name


def _softmax_of(site: Site, name: str) -> Node | None:
    """Return the operand of a softmax along the last axis. None if the node is no such softmax, or if another node
    reads one of its steps."""
    graph = site.graph
    quotient = graph[name]
    if (quotient.kind, quotient.function) != ("map", "div") or not site.alone(name) or len(quotient.sources) != 2:
        return None
    grown, total = (graph[each] for each in quotient.sources)
    apart = graph[grown.sources[0]] if (grown.kind, grown.function) == ("map", "exp") else grown
    if (apart.kind, apart.function) != ("map", "sub") or len(apart.sources) != 2:
        return None
    scores, top = (graph[each] for each in apart.sources)
    last = (len(quotient.shape) - 1,)
    reductions = (total.kind, total.function, total.inputs, total.axes) == ("reduce", "sum", (grown.name,), last)
    reductions &= (top.kind, top.function, top.inputs, top.axes) == ("reduce", "max", (scores.name,), last)
    readers = {scores.name: 2, top.name: 1, apart.name: 1, grown.name: 2, total.name: 1}
    only = all(len(site.readers[each]) == count for each, count in readers.items())
    return scores if reductions and only and not set(readers) & set(graph.outputs) else None


def _scaled(graph: Graph, node: Node) -> tuple[Node, float]:
    """Return the node without its constant factor, and the factor (1 if there is none)."""
    match node.kind, node.function, node.inputs:
        case "map", "mul", (str(x), c) if is_number(c):
            return graph[x], float(c)
        case "map", "mul", (c, str(x)) if is_number(c):
            return graph[x], float(c)
        case "map", "div", (str(x), c) if is_number(c) and c:
            return graph[x], 1.0 / float(c)
    return node, 1.0


def _biased(site: Site, node: Node) -> tuple[Node, str | None]:
    """Return the scores without the additive mask, and the mask (None if there is none). A masked score is minus
    infinity in the mask."""
    graph, b = site.graph, site.builder
    match node.kind, node.function, node.inputs:
        case "map", "where", (str(mask), float(c), str(x)) if c == -math.inf and graph[x].shape == node.shape:
            return graph[x], b.map("where", mask, -math.inf, 0.0, dtype="float32")
        case "map", ("add" | "sub") as function, (str(x), str(other)) if _is_product(graph, x):
            extra = b.map("neg", other) if function == "sub" else other
            return graph[x], extra if graph[other].dtype == "float32" else None
        case "map", "add", (str(other), str(x)) if _is_product(graph, x):
            return graph[x], other if graph[other].dtype == "float32" else None
    return node, None


def _is_product(graph: Graph, name: str) -> bool:
    return _matmul(_scaled(graph, graph[name])[0]) is not None


@node_rule(
    "attention",
    when="softmax(q @ k.transpose * scale + bias) @ v with four axes; a mask may take the place of the bias",
    saves="writing the matrix of scores to memory",
    algebraic=True,
)
def attention(site: Site) -> Operand | None:
    outer = _matmul(site.node)
    scores = _softmax_of(site, outer[0]) if outer is not None else None
    if outer is None or scores is None:
        return None
    scaled, bias = _biased(site, scores)
    product, scale = _scaled(site.graph, scaled)
    inner = _matmul(product)
    alone = all(each is scores or site.alone(each.name) for each in (scaled, product))
    if inner is None or not alone or product.shape != scores.shape:
        return None
    b, (q, transposed), v = site.builder, inner, outer[1]
    k = b.permute(transposed, (0, 1, 3, 2))
    shapes = [b.shape(each) for each in (q, k, v)]
    if len({shape[:2] for shape in shapes}) > 1 or len({shape[3] for shape in shapes}) > 1:
        return None  # torch has no fused kernel for this and would also compute step by step
    given = [Ref(q), Ref(k), Ref(v)]
    if bias is not None:
        bias = b.reshape(bias, (*(1,) * (4 - len(b.shape(bias))), *b.shape(bias)))
        given.append(Ref(bias))
    arguments: Any = (given, {"scale": scale})
    function = "aten.scaled_dot_product_attention.default"
    mixed = b.call("attention", function, arguments, site.node.shape, "float32")
    if bias is None:
        return mixed
    # if a whole row is masked, torch's attention returns zeros but a softmax returns NaN: add infinity minus infinity
    top = b.reduce("max", bias, (3,))
    return b.map("add", mixed, b.map("sub", top, top))


ATTENTION = (attention,)
