"""Writes matrix products with float32 results in tiles, on matrix units that multiply half-precision parts
(`halves.py`).

The result is the sum of three products of parts; the fourth, low * low, is below the last bit. Matrix units truncate
sums instead of rounding them. So they sum at most 64 elements, and these partial sums are added in single precision.
The result is closer to the exact product than the result of torch's own kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.indices import NARROW, summed, times
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.plan import TritonPlan
from kforge.smith.languages.triton.product.halves import (
    PROCESSORS,
    SCALED,
    STEP,
    TILE,
    Parts,
    indented,
    rows_of,
    split,
    split_steps,
)
from kforge.smith.languages.triton.statements import grid_of, launch
from kforge.smith.languages.triton.tails import tail_of
from kforge.smith.patterns.products import product_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.triton.tails import Tail
    from kforge.smith.patterns.products import Product

STAGES = 3
"""Number of steps whose loads are in flight at the same time."""
GROUP = 8
"""Number of rows of tiles that are computed at about the same time, so that they share columns in the cache."""

# Measured on an H200, to choose between this kernel and the library: operations per second in single and in half
# precision, bytes per second of memory, and seconds of a launch.
SINGLE, HALF, MEMORY, LAUNCH = 50e12, 600e12, 4e12, 4e-6
BETWEEN = 4e-6
"""Seconds between two tiles of 128 x 128 on a multiprocessor in which nothing is multiplied: the first loads, scaling
and storing."""
WORTH = 0.85
"""The kernel replaces torch's own product if its estimated time is below this share of the estimated time of
torch's."""


def kernel(name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
    """Return a kernel for a float32 matrix product on half-precision matrix units, with the elementwise operations that
    follow it (`tail`).

    None if the node is not a product or is empty, if the tail cannot be part of the kernel, or if the plan's `split`
    forbids it: 0 always, 1 if torch's own kernel is expected to be faster.
    """
    assert isinstance(context.plan, TritonPlan)
    found = product_of(node, context.graph) if context.plan.split else None
    if found is None or not node.size or not found.inner:
        return None
    columns = found.right.transposed()
    left = Parts("left", rows_of(found.left, found.batches, found.rows, found.inner, context))
    right = Parts("right", rows_of(columns, found.batches, found.columns, found.inner, context))
    if context.plan.split == 1 and not _is_worth_it(left, right):
        return None
    after = tail_of(node, tail, context)
    if after is None:
        return None
    splitting = [split(f"{name}_{parts.name}", parts) for parts in (left, right)]
    steps, given = split_steps(name, node.name, (left, right), context)
    if found.bias:
        given.append(context.elements(found.bias))
    given += after.given
    grid, *_ = grid_of(tiles_of(left, right), found.batches)
    steps.append(launch(name, grid, given, 8, STAGES))
    text = "\n\n".join([*splitting, multiply(name, found, (left, right), after)])
    return WrittenKernel(name, text, tuple(steps), functions.used_in(text))


def tiles_of(left: Parts, right: Parts) -> int:
    """Return the number of tiles of one result matrix."""
    return left.padded // left.tile * (right.padded // right.tile)


def multiplying(tiles: int, height: int, width: int, length: int) -> float:
    """Return the estimated seconds of computing this many tiles of this size; `length` is the length of the sums."""
    tile = 6 * height * width * length / (HALF / PROCESSORS)
    return -(-tiles // PROCESSORS) * (tile + BETWEEN * height * width / TILE**2)


def library(results: int, length: int) -> float:
    """Return the estimated seconds of torch's own product: multiplying, storing the results, and one launch."""
    return 2 * results * length / SINGLE + 4 * results / MEMORY + LAUNCH


def _is_worth_it(left: Parts, right: Parts) -> bool:
    """Return whether the kernel is expected to be faster than torch's own kernel, by a rough estimate."""
    tiles = tiles_of(left, right) * left.given.batch
    splitting = sum(4 * parts.given.batch * parts.given.count * parts.length * 3 for parts in (left, right))
    ours = multiplying(tiles, left.tile, right.tile, left.length) + splitting / MEMORY + 3 * LAUNCH
    results = left.given.batch * left.given.count * right.given.count
    return ours < WORTH * library(results, left.given.length)


# --- multiplying ----------------------------------------------------------------------------------------------------


def multiply(name: str, found: Product, factors: tuple[Parts, Parts], after: Tail) -> str:
    """Return the kernel that multiplies the split `factors` and applies the tail `after`."""
    left, right = factors
    down, across = left.padded // left.tile, right.padded // right.tile
    wide = ".to(tl.int64)" if max(left.size, right.size, after.node.size) >= NARROW - 2**20 else ""
    ways = [
        summed(times("batch", parts.steps[0]), times(index, parts.steps[1]), times("k", parts.steps[2]))
        for parts, index in ((left, "row[:, None]"), (right, "column[None, :]"))
    ]
    ways = [ways[0].replace("k", "k[None, :]"), ways[1].replace("k", "k[:, None]")]
    pairs = [("left", left), ("right", right)]
    loop = [f"for _ in range({left.length // STEP}):"]
    loop += [f"    {side}_high = tl.load({side} + {side}_at)" for side, _ in pairs]
    ahead = [f"    {side}_at += {STEP * parts.steps[2]}" for side, parts in pairs]
    begin = [f"{side}_at = {way}" for (side, _), way in zip(pairs, ways, strict=True)]
    lines = [
        *_order(found.batches, (down, across), (left.tile, right.tile), wide),
        *begin,
        f"total = tl.zeros([{left.tile}, {right.tile}], tl.float32)",
        *loop,
        *(f"    {side}_low = tl.load({side} + {parts.size} + {side}_at)" for side, parts in pairs),
        "    # matrix units truncate their sums, so each piece is summed alone and then added to the total",
        "    part = tl.dot(left_low, right_high)",
        "    part = tl.dot(left_high, right_low, part)",
        "    part = tl.dot(left_high, right_high, part)",
        "    total += part",
        *ahead,
        f"row_scale = tl.load(left_scale + batch * {left.padded} + row)",
        f"column_scale = tl.load(right_scale + batch * {right.padded} + column)",
        *SCALED,
        *("    " + line for line in begin),
        f"    total = tl.zeros([{left.tile}, {right.tile}], tl.float32)",
        *("    " + line for line in loop),
        "        total = tl.dot(left_high, right_high, total)",
        *("    " + line for line in ahead),
        '    product = tl.where(tl.abs(total) < float("inf"), product, total)',
    ]
    given = ["left", "left_scale", "right", "right_scale"]
    if found.bias:
        given.append("bias")
        limit = f", mask=column < {found.columns}, other=0.0" if found.columns != right.padded else ""
        lines.append(f"product += tl.load(bias + column{limit})[None, :]")
    masks = {}
    if found.rows != left.padded:
        masks["line"] = f"(row < {found.rows})[:, None]"
    if found.columns != right.padded:
        masks["place"] = f"(column < {found.columns})[None, :]"
    lines += [f"line = (batch * {found.rows} + row)[:, None]", "place = column[None, :]"]
    lines += after.block("product", {"line": found.batches * found.rows, "place": found.columns}, masks)
    sizes = f"{found.rows} x {found.inner} by {found.columns}"
    head = f"# {after.node.origin or 'product'} of {found.batches} times {sizes}{after.said}\n@triton.jit\n"
    return f"{head}def {name}({', '.join([*given, *after.parameters])}):\n" + indented(lines)


def _order(batches: int, tiles: tuple[int, int], sides: tuple[int, int], wide: str) -> list[str]:
    """Return the lines that choose a program instance's tile. Instances that run at the same time share rows and
    columns in the cache."""
    (down, across), (height, width) = tiles, sides
    group = GROUP * across
    _, tile, batch = grid_of(down * across, batches)
    return [
        f"tile = {tile}",
        f"batch = {batch}{wide}",
        f"first = tile // {group} * {GROUP}",
        f"height = tl.minimum({down} - first, {GROUP})",
        f"row = ((first + tile % {group} % height) * {height} + tl.arange(0, {height})){wide}",
        f"column = (tile % {group} // height * {width} + tl.arange(0, {width})){wide}",
        f"k = tl.arange(0, {STEP})",
    ]
