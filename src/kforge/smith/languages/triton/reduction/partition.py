"""Decides how the work of reductions is divided into programs. `reductions.py` writes the kernels, and `blocks.py` says
what a place is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.languages.indices import block_of
from kforge.smith.languages.triton.reduction.blocks import LANES, PARTS, PROGRAMS, Block
from kforge.smith.languages.triton.reduction.joint_sweeps import joined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kforge.smith.fusion.loops import Nest
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages.triton.plan import TritonPlan
    from kforge.smith.languages.triton.reduction.joint_sweeps import Joint

IN_REGISTERS = 16384
"""Most elements of a block that stay in a program's registers; twice as many for deep columns, which is the most that
fits."""
DEEP = 2
"""Factor on the elements per thread where columns stay in registers: threads that share a column wait for one another.
A softmax of 64 lines in a block of 64 x 256 takes 0.53 ms with 8 warps on an H200, 0.80 ms with 16."""
CROWDED, CROWD = 4, 4
"""With more running values per element than the first number, a step has fewer elements, by the second number as
factor. With six values, a program of 4096 elements in 8 warps needs all registers of a processor. The expected position
in a map of 256 x 256 takes 0.43 ms with steps of 2048 on an H200, 0.36 ms with steps of 1024."""
WALKING = 4
"""Divisor of the elements per thread where a program walks: more warps then wait for memory at the same time. On an
H200 sums of 8192 columns take 0.24 ms with 8 elements per thread and 0.26 ms with 16, those of a sigmoid and two
products 0.26 and 0.30 ms. Where rows are in registers, 32 and 16 make no difference, except for a loss of short rows
(0.29 and 0.32 ms)."""
FEW_WARPS, MOST_WARPS = 16, 32
"""Most warps of a program: the first number where its elements stay in registers or its kernel is relayed, the second
elsewhere. With fewer warps at a time, a second sweep still finds its elements in the cache."""
RELAYED = 1 << 22
"""Fewest elements for which a second pass over all of them finds little in the cache."""
CACHED = 10_000_000
"""Most elements of all running programs for which each still finds its elements in the cache. A softmax of rows of
65536 takes 0.61 ms on an H200, and 0.64 ms when its programs take turns."""


@dataclass(frozen=True)
class Shape:
    """How the work is divided: places per program, elements per step, and programs that share a place (`parts`)."""

    places: int
    step: int
    parts: int
    warps: int
    whole: bool = False
    relayed: bool = False
    again: bool = False
    """Whether one program keeps a processor busy: the next sweep then finds its elements in the cache."""


def cut(nest: Nest, block: Block, plan: TritonPlan) -> tuple[Nest, dict[str, Joint], Shape]:
    """Return the nest with as few sweeps as possible, the merged reductions, and how the work is divided."""
    if (shape := _whole(nest, block, plan)) is not None:
        return nest, {}, shape
    nest, joints = joined(nest, block.i.size)
    return nest, joints, _pieces(nest, joints, block, plan)


def of_places(nest: Nest) -> list[Node]:
    """Return the nodes that have one value per place."""
    return [*nest.before, *(n for sweep in nest.sweeps for n in (*sweep.reductions, *sweep.after))]


def _whole(nest: Nest, block: Block, plan: TritonPlan) -> Shape | None:
    """Return the shape for places whose elements fit into registers together; None where they do not."""
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
    """Return the shape for places whose elements are walked in steps."""
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
    """Return the number of inputs that have separate elements at each place."""
    own = [b for b in nest.buffers if block.i.moves(b.steps) and block.place.moves(b.steps)]
    return max(1, sum(b.name not in nest.outputs for b in own))


def _is_crowded(nest: Nest, joints: Mapping[str, Joint]) -> bool:
    """Return whether threads need many registers for their running values."""
    weighted = {node.name for joint in joints.values() for node in joint.weighted}
    return max(len(sweep.reductions) for sweep in nest.sweeps) + len(weighted) > CROWDED


def _can_be_relayed(nest: Nest, block: Block) -> bool:
    """Return whether only one more pass over many elements is left after the first sweep."""
    if len(nest.sweeps) != 2 or block.place.size * block.i.size < RELAYED or _shares_much(nest, block):
        return False
    return not nest.sweeps[1].reductions and not any(n.name in nest.outputs for n in of_places(nest))


def _shares_much(nest: Nest, block: Block) -> bool:
    """Return whether all places read so much shared memory that a second pass finds nothing else in the cache."""
    shared = [b for b in nest.buffers if block.i.moves(b.steps) and not block.place.moves(b.steps)]
    return 2 * len(shared) * block.i.size > CACHED


def _stays_in_cache(nest: Nest, block: Block) -> bool:
    """Return whether what a program has read is still in the cache in its next sweep."""
    return PROGRAMS // 2 * block.i.size * _operands(nest, block) <= CACHED


def _filling(block: Block, most: int, least: int) -> int:
    """Return the most places per program that still leave enough programs."""
    width = min(most, block_of(block.place.size))
    while width > least and block.place.size < width * PROGRAMS:
        width //= 2
    return width


def _warps(elements: int, share: int, most: int) -> int:
    return max(1, min(most, elements // (32 * share)))
