"""How the work of reductions is cut into programs (`reductions.py` has the kernels)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.languages.triton.indices import block_of
from kforge.smith.languages.triton.reduction.blocks import LANES, PARTS, PROGRAMS, Block
from kforge.smith.languages.triton.reduction.joint_sweeps import joined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kforge.smith.fusion.loops import Nest
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages.triton.plan import TritonPlan
    from kforge.smith.languages.triton.reduction.joint_sweeps import Joint

IN_REGISTERS = 16384
"""Elements of a block that stay in a program's registers; of columns that go far down twice as many, which is as many
as there is room for."""
DEEP = 2
"""Times the share of a thread where columns stay in registers: those that have a column together wait for one another.
A softmax of 64 lines in a block of 64 x 256: 0.53 ms by 8 warps on an H200, 0.80 by 16."""
CROWDED, CROWD = 4, 4
"""Numbers that a step's elements leave behind each, beyond which a step has so many times fewer elements: with six, a
program of 4096 elements in 8 warps has a processor's registers to itself. The expected place in a map of 256 x 256:
0.43 ms by steps of 2048 on an H200, 0.36 by steps of 1024."""
WALKING = 4
"""Times fewer elements a thread has where it walks: more warps wait for memory at the same time. On an H200 sums of
8192 columns take 0.24 ms with 8 elements a thread and 0.26 with 16, of a sigmoid and two products 0.26 and 0.30. Where
rows are in registers, 32 and 16 are alike, but for a loss of short rows (0.29 and 0.32)."""
FEW_WARPS, MOST_WARPS = 16, 32
"""Of a program: few at a time leave little waiting in the cache, where a second sweep looks for it."""
RELAYED = 1 << 22
"""Fewest elements of which a second pass over all finds little in the cache."""
CACHED = 10_000_000
"""Most elements of all programs that run at a time for which each finds its own in the cache: a softmax of rows of
65536 takes 0.61 ms on an H200, and 0.64 when its programs take turns."""


@dataclass(frozen=True)
class Shape:
    """How the work is cut: places a program, elements a step, and pieces that a place is split into."""

    places: int
    step: int
    parts: int
    warps: int
    whole: bool = False
    relayed: bool = False
    again: bool = False
    """Whether a program alone keeps a processor busy: the next sweep then finds its elements in the cache."""


def cut(nest: Nest, block: Block, plan: TritonPlan) -> tuple[Nest, dict[str, Joint], Shape]:
    """The nest in as few sweeps as can be, the reductions that go along with another, and how it is cut."""
    if (shape := _whole(nest, block, plan)) is not None:
        return nest, {}, shape
    nest, joints = joined(nest, block.i.size)
    return nest, joints, _pieces(nest, joints, block, plan)


def of_places(nest: Nest) -> list[Node]:
    """What there is one of at each place."""
    return [*nest.before, *(n for sweep in nest.sweeps for n in (*sweep.reductions, *sweep.after))]


def _whole(nest: Nest, block: Block, plan: TritonPlan) -> Shape | None:
    """Places whose elements fit into registers together."""
    tile, long = plan.tile, block_of(block.i.size)
    if block.rows and long <= IN_REGISTERS:
        width, share = _filling(block, max(1, tile // long), 1), plan.share
    else:
        most = IN_REGISTERS // block_of(_operands(nest, block))
        if block.rows or long * LANES > 2 * most:
            return None
        width, share = _filling(block, max(LANES, min(plan.columns, most // long)), LANES), DEEP * plan.share
    return Shape(width, long, 1, _warps(width * long, share, FEW_WARPS), whole=True)


def _pieces(nest: Nest, joints: Mapping[str, Joint], block: Block, plan: TritonPlan) -> Shape:
    """Places whose elements are walked through."""
    tile = plan.tile // CROWD if _is_crowded(nest, joints) else plan.tile
    count, share = block.i.size, max(1, plan.share // WALKING)
    again = block.rows and len(nest.sweeps) > 1 and block.place.size >= PROGRAMS
    if relayed := bool(plan.relay) and _can_be_relayed(nest, block) and not (again and _stays_in_cache(nest, block)):
        tile, again = 2 * tile, False
    if block.rows:
        width, step = 1, 4 * tile // block_of(_operands(nest, block)) if again else tile
    else:
        width = min(_filling(block, plan.columns, LANES), block_of(block.place.size))
        step = min(block_of(count), max(1, tile // width))
    programs, parts = block.programs(width), 1
    if relayed:
        parts = min(PARTS, -(-count // (2 * step)))
    elif programs < PROGRAMS // 2:
        parts = max(1, min(PARTS, -(-count // (2 * step)), 2 * PROGRAMS // programs))
    warps = MOST_WARPS if again else _warps(width * step, share, FEW_WARPS if relayed else MOST_WARPS)
    return Shape(width, step, parts, warps, relayed=relayed, again=again)


def _operands(nest: Nest, block: Block) -> int:
    """What a place has elements of its own of, and reads."""
    own = [b for b in nest.buffers if block.i.moves(b.steps) and block.place.moves(b.steps)]
    return max(1, sum(b.name not in nest.outputs for b in own))


def _is_crowded(nest: Nest, joints: Mapping[str, Joint]) -> bool:
    """Whether threads need many registers for what they add up."""
    weighted = {node.name for joint in joints.values() for node in joint.weighted}
    return max(len(sweep.reductions) for sweep in nest.sweeps) + len(weighted) > CROWDED


def _can_be_relayed(nest: Nest, block: Block) -> bool:
    """Whether all that is left after the first sweep is to go through everything once more, and that is much."""
    if len(nest.sweeps) != 2 or block.place.size * block.i.size < RELAYED or _shares_much(nest, block):
        return False
    return not nest.sweeps[1].reductions and not any(n.name in nest.outputs for n in of_places(nest))


def _shares_much(nest: Nest, block: Block) -> bool:
    """Whether all places read so much that is the same that a second look finds nothing else in the cache."""
    shared = [b for b in nest.buffers if block.i.moves(b.steps) and not block.place.moves(b.steps)]
    return 2 * len(shared) * block.i.size > CACHED


def _stays_in_cache(nest: Nest, block: Block) -> bool:
    """Whether what a program has read is still there when it goes through it again."""
    return PROGRAMS // 2 * block.i.size * _operands(nest, block) <= CACHED


def _filling(block: Block, most: int, least: int) -> int:
    """Places a program, as many as leave enough programs."""
    width = min(most, block_of(block.place.size))
    while width > least and block.place.size < width * PROGRAMS:
        width //= 2
    return width


def _warps(elements: int, share: int, most: int) -> int:
    return max(1, min(most, elements // (32 * share)))
