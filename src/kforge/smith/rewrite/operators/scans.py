"""Recognises scans that go backwards, and exclusive scans, which torch's operators express by copies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kforge.smith.ir.functions import REDUCTIONS
from kforge.smith.rewrite.rule import node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Node, Operand
    from kforge.smith.rewrite.rule import Site


def _is_flip(node: Node | None, axis: int, size: int) -> bool:
    """Return whether the node reverses the order of all elements along this axis."""
    fits = node is not None and node.function == "slice" and node.axes == (axis,)
    return fits and node is not None and node.arguments == (size - 1, -1) and node.shape[axis] == size


@node_rule("backward scan", when="a scan between two flips along its axis", saves="two copies of the tensor")
def backward_scan(site: Site) -> Operand | None:
    node, scan = site.node, site.source()
    if scan is None or scan.kind != "scan" or not site.alone(scan.name):
        return None
    (axis,), inner = scan.axes, site.graph[scan.sources[0]]
    size = scan.shape[axis]
    if not _is_flip(node, axis, size) or not _is_flip(inner, axis, size) or inner.shape != node.shape:
        return None
    mode = replace(scan.arguments, backwards=not scan.arguments.backwards)
    return site.builder.scan(scan.function, inner.sources[0], axis, mode)


@node_rule(
    "exclusive scan",
    when="a scan of the neutral value followed by all elements but the last",
    saves="a copy of the tensor",
)
def exclusive_scan(site: Site) -> Operand | None:
    node, joined = site.node, site.source()
    if node.kind != "scan" or joined is None or joined.function != "cat" or joined.axes != node.axes:
        return None
    (axis,), mode = node.axes, node.arguments
    if mode.backwards or mode.exclusive or len(joined.sources) != 2:
        return None
    first, rest = (site.graph[name] for name in joined.sources)
    if first.shape[axis] != 1 or not _is_full(first, REDUCTIONS[node.function].nothing):
        return None
    whole = site.graph[rest.sources[0]] if rest.function == "slice" and rest.axes == (axis,) else None
    if whole is None or whole.shape != node.shape or rest.arguments != (0, 1):
        return None
    return site.builder.scan(node.function, whole.name, axis, replace(mode, exclusive=True))


def _is_full(node: Node, value: float) -> bool:
    """Return whether every element of the node is this number."""
    makers = {"aten.zeros_like.default": 0.0, "aten.zeros.default": 0.0, "aten.ones_like.default": 1.0}
    return node.kind == "call" and makers.get(node.function) == value


SCANS = (backward_scan, exclusive_scan)
