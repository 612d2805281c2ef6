"""Finds the loops of a tail: the maps that a kernel applies to each result of a call before it stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import nest
from kforge.smith.languages.indices import IndexText

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Nest
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Graph, Node


def nest_of_tail(region: Region, graph: Graph, node: Node, beside: str = "") -> Nest | None:
    """Return the loops of the maps in `region`, which follow the call `node`. `beside` is the name of a second call
    that the same kernel computes.

    Returns None if an element of the maps needs more than one element of a call's result.
    """
    following = nest(region, graph)
    whole = IndexText("i", tuple((axis, loop.size) for axis, loop in enumerate(following.loops)))
    own = (buffer for buffer in following.buffers if buffer.base in (node.name, beside))
    aligned = all(whole.address(buffer.steps) in ("i", "") and not buffer.offset for buffer in own)
    return following if aligned and whole.size == node.size else None
