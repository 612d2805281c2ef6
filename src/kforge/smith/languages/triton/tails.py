"""Runs the maps that follow a call (its tail) in the kernel of the call, so that the call's own result is never
stored."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.smith.languages.indices import IndexText
from kforge.smith.languages.tails import nest_of_tail
from kforge.smith.languages.triton.statements import Statements, memory_name

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Nest
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Graph, Node
    from kforge.smith.languages import Context


class Tail:
    """Writes the end of a kernel: the lines that apply the maps to the call's results and store what they give. Without
    maps, the lines store the results themselves."""

    def __init__(self, node: Node, following: Nest | None, context: Context, beside: str = "") -> None:
        """`beside` names another call whose results the same kernel computes. Empty if there is none."""
        self.node = node
        self.beside = beside
        self.following = following
        self.graph: Graph = context.graph
        if following is None:
            self.parameters = [f"{node.name}_out"]
            self.given = [node.name]
            return
        self.own = {buffer.name for buffer in following.buffers if buffer.base == node.name}
        others = [buffer for buffer in following.memories if buffer.base not in (node.name, beside)]
        self.parameters = [memory_name(buffer, following) for buffer in others]
        self.given = [context.memory(buffer.base) for buffer in others]

    def flat(self, result: str, mask: str, other: str = "") -> list[str]:
        """Return the lines for a block of results. The variable `i` is the index of each result. `other` is the
        variable with the results of the call beside."""
        if self.following is None:
            return [f"tl.store({self.node.name}_out + i, {result}{f', mask={mask}' if mask else ''})"]
        return self._maps(result, (IndexText("i", self._loops()),), {"i": mask} if mask else {}, other)

    def block(self, result: str, counts: dict[str, int], masks: dict[str, str]) -> list[str]:
        """Return the lines for a block with several index variables. `counts` has the size of each index, by name."""
        indices, loops = [], list(self._loops())
        for name, count in counts.items():
            end = next((n for n in range(len(loops) + 1) if math.prod(size for _, size in loops[:n]) == count), None)
            if end is None or self.following is None:  # no tail, or a loop of it spans two indices
                return [f"i = {self._flattened(counts)}", *self.flat(result, " & ".join(masks.values()))]
            indices.append(IndexText(name, tuple(loops[:end])))
            loops = loops[end:]
        return self._maps(result, tuple(indices), masks)

    def _flattened(self, counts: dict[str, int]) -> str:
        below = [math.prod(list(counts.values())[place + 1 :]) for place in range(len(counts))]
        return " + ".join(f"{name} * {step}" if step > 1 else name for name, step in zip(counts, below, strict=True))

    def _loops(self) -> tuple[tuple[int, int], ...]:
        loops = () if self.following is None else self.following.loops
        return tuple((axis, loop.size) for axis, loop in enumerate(loops))

    def _maps(self, result: str, indices: tuple[IndexText, ...], masks: dict[str, str], other: str = "") -> list[str]:
        assert self.following is not None
        body = Statements(self.graph, self.following, indices, masks, depth=0)
        body.values.update(dict.fromkeys(self.own, result))
        body.values.update({each.name: other for each in self.following.buffers if each.base == self.beside})
        nodes = self.following.sweeps[0].elements
        body.compute(nodes)
        body.store(nodes)
        return body.lines

    @property
    def said(self) -> str:
        """The tail's part of the comment above the kernel."""
        return "" if self.following is None else f", then {self.following.title}"


def tail_of(node: Node, region: Region | None, context: Context, beside: str = "") -> Tail | None:
    """Return the tail for a call: the maps in `region`, or only a store if `region` is None. None if an element of the
    maps needs more than one element of the call's result."""
    if region is None:
        return Tail(node, None, context)
    following = nest_of_tail(region, context.graph, node, beside)
    return None if following is None else Tail(node, following, context, beside)
