"""Writes argmax and argmin in Triton: the index of the largest or smallest element along an axis.

A program instance goes through the elements of its places (`blocks.py`) in pieces, so memory is read once. Each
position of a block keeps the best value it has seen, and positions are compared only at the end. The last axis of a
block is the one that is contiguous in memory. As in torch, the first NaN comes before every number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.ir.graph import Ref
from kforge.smith.ir.windows import around
from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.indices import NARROW, IndexText, block_of
from kforge.smith.languages.triton.reduction.blocks import LANES, PROGRAMS
from kforge.smith.languages.triton.statements import INDENT, launch

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Node, Shape
    from kforge.smith.languages import Context

STEP = 2048
"""Number of elements of a block if the reduced axis is contiguous."""
TILE = 1024
"""Number of elements of a block if the reduced axis is not contiguous: eight for each of 128 threads, so that many
blocks are in flight."""
WIDEST = 128
"""Most columns of a block."""
TOO_FEW = 64
"""Fewest program instances for a kernel. With fewer, and many elements for each, torch divides the work better."""


def kernel(name: str, node: Node, context: Context) -> WrittenKernel | None:
    """Return a kernel for an argmax or argmin call, or None for other calls and if torch is expected to be faster."""
    packet = node.function.removeprefix("aten.").partition(".")[0]
    positional, named = node.arguments if node.kind == "call" else ((), {})
    if packet not in ("argmax", "argmin") or named or not isinstance(positional[0], Ref) or not node.size:
        return None
    source = context.graph[positional[0].name]
    if source.dtype != "float32":
        return None
    walk = _walk(source.shape, positional[1] if len(positional) > 1 else None)
    if walk.programs < TOO_FEW and walk.length > 16 * walk.step:
        return None
    head = f"# {packet} of {walk.place.size} times {walk.length}\n@triton.jit\ndef {name}(x, out):\n"
    text = head + "\n".join(INDENT + line for line in _extreme(walk, packet)) + "\n"
    given = [context.elements(source.name), node.name]
    warps = max(1, min(8, walk.places * walk.step // 256))
    return WrittenKernel(name, text, (launch(name, [walk.programs], given, warps),))


@dataclass(frozen=True)
class Walk:
    """How a program instance goes through the elements of its places (`blocks.py`). A place has `length` elements,
    which are `lanes` elements apart in memory. A block has `places` places and `step` elements of each."""

    place: IndexText
    length: int
    lanes: int
    places: int
    step: int

    @property
    def rows(self) -> bool:
        return self.lanes == 1

    @property
    def axis(self) -> int:
        return 1 if self.rows else 0

    @property
    def programs(self) -> int:
        return -(-self.place.size // self.places)

    @property
    def shape(self) -> str:
        """The shape of a block, as Triton source."""
        return f"[{self.places}, {self.step}]" if self.rows else f"[{self.step}, {self.places}]"

    @property
    def mask(self) -> str:
        masks = [f"(place < {self.place.size})"] if self.place.size % self.places else []
        masks += [f"(i < {self.length})"] if self.length % self.step else []
        return " & ".join(masks)

    def begin(self) -> str:
        wide = ".to(tl.int64)" if self.place.size * self.length >= NARROW - 2**20 else ""
        axes = "[:, None]" if self.rows else "[None, :]"
        return f"place = (tl.program_id(0){wide} * {self.places} + tl.arange(0, {self.places})){axes}"

    def loop(self, lines: list[str], other: str) -> list[str]:
        """Return a loop over the pieces with these lines inside. Each piece is in the variable `value`; `other` fills
        masked elements."""
        axes = "[None, :]" if self.rows else "[:, None]"
        mask = f", mask={self.mask}, other={other}" if self.mask else ""
        place = self.place.address((self.length * self.lanes, 1)) if not self.rows else f"place * {self.length}"
        body = [
            f"i = (start + tl.arange(0, {self.step})){axes}",
            f"at = {place} + {'i' if self.rows else f'i * {self.lanes}'}",
            f"value = tl.load(x + at{mask})",
            *lines,
        ]
        return [f"for start in range(0, {self.length}, {self.step}):", *(INDENT + line for line in body)]


def _walk(shape: Shape, axis: int | None) -> Walk:
    outer, length, lanes = (1, math.prod(shape), 1) if axis is None else around(shape, axis)
    if lanes == 1:
        step = min(STEP, block_of(length))
        return Walk(IndexText("place", ((0, outer),)), length, 1, min(STEP // step, block_of(outer)), step)
    count = outer * lanes
    places = min(WIDEST, block_of(count))
    while places > LANES and -(-count // places) < PROGRAMS:
        places //= 2
    return Walk(
        IndexText("place", ((0, outer), (1, lanes))), length, lanes, places, min(TILE // places, block_of(length))
    )


def _extreme(walk: Walk, packet: str) -> list[str]:
    worse, function, worst = ("<=", "max", "-inf") if packet == "argmax" else (">=", "min", "inf")
    body = [
        f"better = ~(value {worse} best) & (best == best)  # also true for the first NaN",
        "position = tl.where(better, i, position)",
        "best = tl.where(better, value, best)",
    ]
    mask = f", mask=place < {walk.place.size}" if walk.place.size % walk.places else ""
    return [
        walk.begin(),
        f'best = tl.full({walk.shape}, float("{worst}"), tl.float32)',
        f"position = tl.zeros({walk.shape}, tl.int32)",
        *walk.loop(body, f'float("{worst}")'),
        "# the first of equal elements; positions of NaN are made negative here, so that they come before all others",
        f'number = tl.where(best == best, best, float("{worst}"))',
        f"top = tl.{function}(number, axis={walk.axis}, keep_dims=True)",
        f"position = tl.where(best == top, position, tl.where(best == best, {walk.length}, position - {walk.length}))",
        f"position = tl.min(position, axis={walk.axis}, keep_dims=True)",
        f"position = tl.where(position < 0, position + {walk.length}, position)",
        f"tl.store(out + place, position.to(tl.int64){mask})",
    ]
