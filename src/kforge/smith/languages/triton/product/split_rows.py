"""Writes matrix products with few results and a long inner dimension: several program instances share the sums of one
tile.

The inner dimension is cut into pieces, which are multiplied like the matrices of a batch (`tiled.py`). Each row of a
piece has its own scale. Another kernel adds up the results of the pieces, always in the same order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.indices import block_of
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.plan import TritonPlan
from kforge.smith.languages.triton.product.halves import PROCESSORS, STEP, Parts, indented, rows_of, split, split_steps
from kforge.smith.languages.triton.product.tiled import (
    LAUNCH,
    MEMORY,
    STAGES,
    WORTH,
    library,
    multiply,
    multiplying,
    tiles_of,
)
from kforge.smith.languages.triton.statements import launch
from kforge.smith.languages.triton.tails import Tail, tail_of
from kforge.smith.patterns.products import product_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.triton.product.halves import Rows
    from kforge.smith.patterns.products import Product

ROUNDS = 8
"""Most pieces per multiprocessor that are considered. More pieces are faster to split, but their results must be added
up."""
ADDED = 8192
"""Number of elements per program instance of the kernel that adds up the pieces."""


def kernel(name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
    """Return a kernel for a product and the elementwise operations that follow it (`tail`). None if cutting the inner
    dimension does not help or torch's own kernel is expected to be faster."""
    assert isinstance(context.plan, TritonPlan)
    found = product_of(node, context.graph) if context.plan.split else None
    if found is None or found.batches != 1 or not node.size or not found.inner:
        return None
    left, right = _pieces(found, context)
    seconds = _seconds(left, right)
    if left.given.batch == 1 or (context.plan.split == 1 and seconds >= WORTH * library(node.size, found.inner)):
        return None
    after = tail_of(node, tail, context)
    if after is None:
        return None
    count, sums = left.given.batch, f"{node.name}_sums"
    steps, given = split_steps(name, node.name, (left, right), context)
    bias = [context.elements(found.bias)] if found.bias else []
    width = max(1, ADDED // block_of(count))
    steps += [
        f"{sums} = {context.empty((count * node.size,), 'float32')}",
        launch(f"{name}_pieces", [tiles_of(left, right), count], [*given, sums], 8, STAGES),
        launch(name, [-(-node.size // width)], [sums, *bias, *after.given], 8),
    ]
    pieces = replace(found, batches=count, inner=left.given.length, bias="")
    texts = [split(f"{name}_{parts.name}", parts) for parts in (left, right)]
    texts.append(multiply(f"{name}_pieces", pieces, (left, right), Tail(node, None, context)))
    texts.append(_add(name, found, count, width, after))
    text = "\n\n".join(texts)
    return WrittenKernel(name, text, tuple(steps), functions.used_in(text))


def _pieces(found: Product, context: Context) -> tuple[Parts, Parts]:
    """Return both factors, cut into the number of pieces with the least estimated time. One piece if there are enough
    tiles for the device."""
    sides = [
        ("left", rows_of(found.left, 1, found.rows, found.inner, context)),
        ("right", rows_of(found.right.transposed(), 1, found.columns, found.inner, context)),
    ]

    def cut(count: int) -> tuple[Parts, Parts]:
        left, right = (Parts(side, _cut(rows, count)) for side, rows in sides)
        return left, right

    programs = PROCESSORS // tiles_of(*cut(1))
    counts = [1, *(programs * rounds for rounds in range(1, ROUNDS + 1))] if programs > 1 else [1]
    return min(map(cut, counts), key=lambda factors: _seconds(*factors))


def _cut(rows: Rows, count: int) -> Rows:
    """Return the rows of one matrix as several matrices: pieces along the rows, each a multiple of `STEP` long."""
    length = -(-rows.length // (count * STEP)) * STEP
    if count == 1 or length >= rows.length:
        return rows
    _, between, along = rows.steps
    pieces, steps = -(-rows.length // length), (length * along, between, along)
    return replace(rows, batch=pieces, length=length, steps=steps, whole=rows.length)


def _seconds(left: Parts, right: Parts) -> float:
    """Return the estimated seconds of splitting (long rows are read twice), multiplying, and adding up."""
    passes = [(parts.size, 2 if parts.held >= parts.length else 3) for parts in (left, right)]
    pieces = left.given.batch
    sums = 2 * pieces * left.given.count * right.given.count if pieces > 1 else 0
    moved = 4 * (sum(size * often for size, often in passes) + sums)
    products = multiplying(tiles_of(left, right) * pieces, left.tile, right.tile, left.length)
    return products + moved / MEMORY + (4 if pieces > 1 else 3) * LAUNCH


def _add(name: str, found: Product, count: int, width: int, after: Tail) -> str:
    size, high = after.node.size, block_of(count)
    ends = f"i < {size}" if size % width else ""
    masks = [f"({ends})[None, :]"] if ends else []
    masks += [f"(piece < {count})"] if count != high else []
    limit = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
    lines = [
        f"i = tl.program_id(0) * {width} + tl.arange(0, {width})",
        f"piece = tl.arange(0, {high})[:, None]",
        f"product = tl.sum(tl.load(sums + piece * {size} + i[None, :]{limit}), axis=0)",
        *([f"product += tl.load(bias + i % {found.columns})"] if found.bias else []),
        *after.flat("product", ends),
    ]
    given = ["sums", *(["bias"] if found.bias else []), *after.parameters]
    head = f"# {count} pieces of {found.rows} x {found.columns} sums{after.said}\n@triton.jit\n"
    return f"{head}def {name}({', '.join(given)}):\n" + indented(lines)
