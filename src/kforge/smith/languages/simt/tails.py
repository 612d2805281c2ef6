"""Runs the maps that follow a call (its tail) in the kernel of the call, so that the call's own result is never
stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.languages.indices import IndexText
from kforge.smith.languages.simt.elements import Elements, Memories
from kforge.smith.languages.tails import nest_of_tail

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Nest
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.simt.code import Code, Value


class Tail:
    """The end of a kernel: it applies the maps to each result and stores the outcome. The variable `i` is the index of
    the result."""

    def __init__(self, node: Node, following: Nest | None, context: Context) -> None:
        self.node, self.following = node, following
        self.context = context
        self.memories = None if following is None else Memories(following, context.graph, [node.name])

    def declare(self, code: Code) -> None:
        if self.memories is None:
            code.parameter(f"{self.node.name}_out", self.node.dtype, written=True)
        else:
            self.memories.declare(code)

    @property
    def given(self) -> dict[str, str]:
        if self.memories is None:
            return {f"{self.node.name}_out": self.node.name}
        return self.memories.given(self.context)

    def finish(self, code: Code, result: Value) -> None:
        """Write the statements for one result. The variable `i` holds its index."""
        if self.following is None or self.memories is None:
            code.store(f"{self.node.name}_out", "i", result)
            return
        loops = tuple((axis, loop.size) for axis, loop in enumerate(self.following.loops))
        body = Elements(code, self.memories, (IndexText("i", loops, "/"),))
        own = (buffer.name for buffer in self.following.buffers if buffer.base == self.node.name)
        body.values.update(dict.fromkeys(own, result))
        nodes = self.following.sweeps[0].elements
        body.compute(nodes)
        body.store(nodes)

    @property
    def said(self) -> str:
        """The tail's part of the comment above the kernel."""
        return "" if self.following is None else f", then {self.following.title}"


def tail_of(node: Node, region: Region | None, context: Context) -> Tail | None:
    """Return the tail for a call: the maps in `region`, or only a store if `region` is None. None if an element of the
    maps needs more than one element of the call's result."""
    if region is None:
        return Tail(node, None, context)
    following = nest_of_tail(region, context.graph, node)
    return None if following is None else Tail(node, following, context)
