"""Writes matrix products whose inner size is at most one step (64 elements), from half-precision parts (`halves.py`).
Memory bandwidth limits their speed.

The right factor is split in advance. Rows of the left factor are scaled and split in the multiplying kernel itself, so
that they are read once and their parts are never stored. A program instance keeps its columns while it goes through
several tiles of rows, and loads the next tile while it stores the previous one. There is no branch for values that are
not finite, because a branch would cost a third of the registers: such values take part only in the product of the high
parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.indices import NARROW, block_of, reach, summed, times
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.plan import TritonPlan
from kforge.smith.languages.triton.product.halves import (
    HALVES,
    PROCESSORS,
    SCALE,
    SIZE,
    STEP,
    Parts,
    indented,
    measured,
    rows_of,
    split,
    split_steps,
)
from kforge.smith.languages.triton.product.tiled import LAUNCH, WORTH, library
from kforge.smith.languages.triton.statements import launch
from kforge.smith.languages.triton.tails import tail_of
from kforge.smith.patterns.products import product_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.triton.product.halves import Rows
    from kforge.smith.languages.triton.tails import Tail
    from kforge.smith.patterns.products import Product

HEIGHT = 64
"""Number of rows of a tile. With 128 rows and twice the warps, a product took twice as long."""
NARROWEST = 16
"""Fewest columns, and fewest elements of a row, that a matrix unit can multiply."""
STAGES = 3
"""Number of tiles whose loads are in flight at the same time."""
MOST = 8
"""Most tiles of rows that one program instance goes through."""
PROGRAMS = 3 * PROCESSORS
"""Fewest program instances: about as many as a device runs at the same time. To reach it, each instance gets fewer
tiles."""
STREAM = 2.3e12
"""Bytes per second that these products read and write, measured on an H200."""


def kernel(name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
    """Return a kernel for a product of short rows and the elementwise operations that follow it (`tail`). None if the
    rows are longer or torch's own kernel is expected to be faster."""
    assert isinstance(context.plan, TritonPlan)
    found = product_of(node, context.graph) if context.plan.split else None
    if found is None or not node.size or not 0 < found.inner <= STEP:
        return None
    columns = found.right.transposed()
    left = rows_of(found.left, found.batches, found.rows, found.inner, context)
    right = Parts(
        "right",
        rows_of(columns, found.batches, found.columns, found.inner, context),
        NARROWEST,
        max(NARROWEST, block_of(found.inner)),
    )
    if context.plan.split == 1 and not _is_worth_it(left, right, node.size):
        return None
    after = tail_of(node, tail, context)
    if after is None:
        return None
    steps, given = split_steps(name, node.name, [right], context)
    bias = [context.elements(found.bias)] if found.bias else []
    _, groups = _groups(left, right)
    programs = groups * (right.padded // right.tile) * found.batches
    steps.append(launch(name, [programs], [left.memory, *given, *bias, *after.given], 4))
    text = "\n\n".join([split(f"{name}_right", right), _multiply(name, found, left, right, after)])
    return WrittenKernel(name, text, tuple(steps), functions.used_in(text))


def _is_worth_it(left: Rows, right: Parts, results: int) -> bool:
    """Return whether the kernel is expected to be faster than torch's own kernel. The estimate counts the bytes read
    and written, including those of splitting the right factor."""
    moved = 4 * (left.size + 3 * right.size + results)
    return moved / STREAM + 2 * LAUNCH < WORTH * library(results, left.length)


def _groups(left: Rows, right: Parts) -> tuple[int, int]:
    """Return the number of row tiles per program instance, and the number of program instances per column tile."""
    down, beside = -(-left.count // HEIGHT), right.padded // right.tile * left.batch
    each = MOST
    while each > 1 and -(-down // each) * beside < PROGRAMS:
        each //= 2
    return each, -(-down // each)


def _multiply(name: str, found: Product, left: Rows, right: Parts, after: Tail) -> str:
    (each, groups), across = _groups(left, right), right.padded // right.tile
    far = reach(left.steps, (left.batch, left.count, left.length), left.offset)
    wide = ".to(tl.int64)" if max(far, right.size, after.node.size) >= NARROW - 2**20 else ""
    masks = {}
    if left.count % (each * HEIGHT):
        masks["line"] = f"(row < {left.count})[:, None]"
    if found.columns != right.padded:
        masks["place"] = f"(column < {found.columns})[None, :]"
    inside = [masks["line"]] if "line" in masks else []
    inside += [f"(k < {left.length})[None, :]"] if left.length != right.length else []
    limit = f", mask={' & '.join(inside)}, other=0.0" if inside else ""
    largest, odd = measured(1)
    body = [
        f"row = (program % {groups} * {each} + tile) * {HEIGHT} + tl.arange(0, {HEIGHT})",
        f"value = tl.load(left + {_at(left.steps, 'row[:, None]', 'k[None, :]', left.offset)}{limit})",
        *SIZE,
        f"largest = {largest}",
        f"odd = {odd}",
        *SCALE,
        *HALVES,
        "total = tl.dot(low, right_finite)",
        "total = tl.dot(tl.where(finite, high, 0.0), right_low, total)",
        "total = tl.dot(high, right_high, total)",
        "scale = tl.where(inverse < 0.0, 1.0, inverse) * column_scale",
        "product = total * tl.minimum(scale, 3e38)",
        *(["product += added"] if found.bias else []),
        f"line = (batch * {found.rows} + row)[:, None]",
        "place = column[None, :]",
        *after.block("product", {"line": found.batches * found.rows, "place": found.columns}, masks),
    ]
    known = f", mask={masks['place']}, other=0.0" if "place" in masks else ""
    lines = [
        f"program = tl.program_id(0){wide}",
        f"batch = program // {groups * across}",
        f"column = program // {groups} % {across} * {right.tile} + tl.arange(0, {right.tile})",
        f"k = tl.arange(0, {right.length})",
        "# the columns stay in registers while the loop goes through the rows",
        f"right_at = {_at(right.steps, 'column[None, :]', 'k[:, None]')}",
        "right_high = tl.load(right + right_at)",
        f"right_low = tl.load(right + {right.size} + right_at)",
        "# Infinities and NaN come from products of high halves only, and their scale is one.",
        'right_finite = tl.where(tl.abs(right_high) < float("inf"), right_high, 0.0)',
        f"column_scale = tl.load(right_scale + batch * {right.padded} + column[None, :])",
        "column_scale = tl.where(column_scale < 0.0, 1.0, column_scale)",
        *([f"added = tl.load(bias + column[None, :]{known})"] if found.bias else []),
        f"for tile in tl.range({each}, num_stages={STAGES}):",
        *("    " + line for line in body),
    ]
    given = ["left", "right", "right_scale", *(["bias"] if found.bias else []), *after.parameters]
    sizes = f"{found.rows} x {found.inner} by {found.columns}"
    head = f"# {after.node.origin or 'product'} of {found.batches} times {sizes}{after.said}\n@triton.jit\n"
    return f"{head}def {name}({', '.join(given)}):\n" + indented(lines)


def _at(steps: tuple[int, int, int], index: str, k: str, offset: int = 0) -> str:
    between, down, along = steps
    return summed(times("batch", between), times(index, down), times(k, along), str(offset) if offset else "")
