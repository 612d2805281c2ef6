"""Decides how the work of a reduction is divided among program instances. `reductions.py` writes the kernels;
`blocks.py` explains what a place is."""

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
"""Most elements of a block that a program instance keeps in registers. Columns may have twice as many, which is the
most that fits."""
DEEP = 2
"""Factor on the elements per thread if columns stay in registers, because threads that share a column wait for each
other. On an H200, a softmax over 64 rows in a block of 64 x 256 takes 0.53 ms with 8 warps and 0.80 ms with 16."""
CROWDED, CROWD = 4, 4
"""If a sweep has more than `CROWDED` running values per element, a step has fewer elements, divided by `CROWD`. With
six running values, 4096 elements in 8 warps would need all registers of a multiprocessor. On an H200, a soft-argmax
over images of 256 x 256 takes 0.43 ms with steps of 2048 elements and 0.36 ms with 1024."""
WALKING = 4
"""Divisor of the elements per thread if a program instance goes through its elements in steps. More warps then wait for
memory at the same time. On an H200, sums of 8192 columns take 0.24 ms with 8 elements per thread and 0.26 ms with 16;
sums of a sigmoid and two products take 0.26 and 0.30 ms."""
FEW_WARPS, MOST_WARPS = 16, 32
"""Most warps of a program instance. `FEW_WARPS` holds if its elements stay in registers or the kernel is relayed,
`MOST_WARPS` otherwise. Fewer warps leave fewer elements in the cache between the sweeps of a relayed kernel, so the
second sweep still finds them."""
RELAYED = 1 << 22
"""Fewest elements for which a kernel is relayed. A second pass over fewer elements finds most of them in the cache."""
CACHED = 10_000_000
"""Most elements of all running program instances for which each instance still finds its own in the cache. On an H200,
a softmax of rows of 65536 takes 0.61 ms, and 0.64 ms if the kernel is relayed."""


@dataclass(frozen=True)
class Shape:
    """How the work is divided: `places` and `warps` per program instance, elements per `step`, and `parts`, the number
    of instances that share a place. `whole` and `relayed` are explained in `reductions.py`."""

    places: int
    step: int
    parts: int
    warps: int
    whole: bool = False
    relayed: bool = False
    again: bool = False
    """Whether one program instance is large enough to fill a multiprocessor alone. Its next sweep then finds the same
    elements in the cache."""


def cut(nest: Nest, block: Block, plan: TritonPlan) -> tuple[Nest, dict[str, Joint], Shape]:
    """Return the nest with as few sweeps as possible, the merged reductions by name, and how the work is divided."""
    if (shape := _whole(nest, block, plan)) is not None:
        return nest, {}, shape
    nest, joints = joined(nest, block.i.size)
    return nest, joints, _pieces(nest, joints, block, plan)


def of_places(nest: Nest) -> list[Node]:
    """Return the nodes that have one value per place."""
    return [*nest.before, *(n for sweep in nest.sweeps for n in (*sweep.reductions, *sweep.after))]


def _whole(nest: Nest, block: Block, plan: TritonPlan) -> Shape | None:
    """Return the division for places whose elements all fit into registers, or None if they do not fit."""
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
    """Return the division for places whose elements a program instance goes through in steps."""
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
    """Return the number of inputs that have different elements at each place."""
    own = [b for b in nest.buffers if block.i.moves(b.steps) and block.place.moves(b.steps)]
    return max(1, sum(b.name not in nest.outputs for b in own))


def _is_crowded(nest: Nest, joints: Mapping[str, Joint]) -> bool:
    """Return whether threads need many registers for running values."""
    weighted = {node.name for joint in joints.values() for node in joint.weighted}
    return max(len(sweep.reductions) for sweep in nest.sweeps) + len(weighted) > CROWDED


def _can_be_relayed(nest: Nest, block: Block) -> bool:
    """Return whether the nest has exactly two sweeps over many elements, of which the second only stores elements."""
    if len(nest.sweeps) != 2 or block.place.size * block.i.size < RELAYED or _shares_much(nest, block):
        return False
    return not nest.sweeps[1].reductions and not any(n.name in nest.outputs for n in of_places(nest))


def _shares_much(nest: Nest, block: Block) -> bool:
    """Return whether all places read the same large tensors, which would fill the cache before a second pass."""
    shared = [b for b in nest.buffers if block.i.moves(b.steps) and not block.place.moves(b.steps)]
    return 2 * len(shared) * block.i.size > CACHED


def _stays_in_cache(nest: Nest, block: Block) -> bool:
    """Return whether the elements that a program instance has read are still in the cache in its next sweep."""
    return PROGRAMS // 2 * block.i.size * _operands(nest, block) <= CACHED


def _filling(block: Block, most: int, least: int) -> int:
    """Return the largest number of places per program instance that still leaves enough instances to fill the
    device."""
    width = min(most, block_of(block.place.size))
    while width > least and block.place.size < width * PROGRAMS:
        width //= 2
    return width


def _warps(elements: int, share: int, most: int) -> int:
    return max(1, min(most, elements // (32 * share)))
