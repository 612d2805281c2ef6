"""Recognises calls of torch that are attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.ir.graph import Ref

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Graph, Node

_CALL = "aten.scaled_dot_product_attention.default"
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


@dataclass(frozen=True)
class Attention:
    """softmax(query @ key.transpose * scale + bias) @ value. The tensors have four axes: batch, head, position,
    channel."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    scale: float
    causal: bool
    query: str
    key: str
    value: str
    """Name of the values' node. Keys and values may have a single head, which all heads of the queries share."""
    bias: str
    """Name of the additive mask, which is broadcast. Empty if there is none."""


def attention_of(node: Node, graph: Graph) -> Attention | None:
    """Return the description of an attention call. None if the node is not attention, or uses options that kernels do
    not support."""
    if node.kind != "call" or node.function != _CALL or node.dtype != "float32" or len(node.shape) != 4:
        return None
    positional, named = node.arguments
    given = {**dict(zip(_NAMES, positional, strict=False)), **named}
    if given.get("dropout_p") or given.get("enable_gqa") or not all(isinstance(given[n], Ref) for n in _NAMES[:3]):
        return None
    query, key, value = (given[name].name for name in _NAMES[:3])
    mask, causal = given.get("attn_mask"), bool(given.get("is_causal"))
    bias = mask.name if isinstance(mask, Ref) else ""
    if any(graph[name].dtype != "float32" for name in (query, key, value, *([bias] if bias else []))):
        return None
    (batch, heads, queries, width), (_, _, keys, _) = graph[query].shape, graph[key].shape
    if graph[key].shape != (batch, heads, keys, width) or graph[value].shape != graph[key].shape or not node.size:
        return None
    if bias and (len(graph[bias].shape) != 4 or causal):
        return None
    scale = given.get("scale")
    return Attention(
        batch, heads, queries, keys, width, 1.0 / math.sqrt(width) if scale is None else float(scale), causal,
        query, _unexpanded(key, graph), _unexpanded(value, graph), bias,
    )  # fmt: skip


def _unexpanded(name: str, graph: Graph) -> str:
    """Return the name of the tensor before expansion if one head was expanded to all heads; otherwise the name
    itself."""
    node = graph[name]
    if node.function != "aten.expand.default" or not node.sources:
        return name
    source = graph[node.sources[0]]
    return source.name if source.shape == (node.shape[0], 1, *node.shape[2:]) else name
