"""Writes products of many tiny matrices. A program instance computes many of them, and each thread a few results.
Memory bandwidth limits their speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.indices import NARROW, block_of, reach, summed, times
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.plan import TritonPlan
from kforge.smith.languages.triton.product.halves import indented, rows_of
from kforge.smith.languages.triton.statements import launch
from kforge.smith.languages.triton.tails import tail_of
from kforge.smith.patterns.products import product_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context

TINY = 16
"""Most rows, columns and inner elements of a tiny matrix."""
MANY = 4096
"""Fewest matrices for which this kernel is used unless the plan's `split` is 2. For fewer, torch's library is fast."""
RESULTS = 4096
"""Number of result elements per program instance."""


def kernel(name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
    """Return a kernel for the products and the elementwise operations that follow them (`tail`). None for other calls,
    and if there is a bias or the matrices are too few or too large."""
    assert isinstance(context.plan, TritonPlan)
    found = product_of(node, context.graph) if context.plan.split else None
    if found is None or found.bias or not node.size or not found.inner:
        return None
    if max(found.rows, found.inner, found.columns) > TINY or (found.batches < MANY and context.plan.split == 1):
        return None
    after = tail_of(node, tail, context)
    if after is None or found.batches < 2:
        return None
    left = rows_of(found.left, found.batches, found.rows, found.inner, context)
    right = rows_of(found.right, found.batches, found.inner, found.columns, context)
    high, across = block_of(found.rows), block_of(found.columns)
    each = max(1, RESULTS // (high * across))
    sizes = ((found.batches, found.rows, found.inner), (found.batches, found.inner, found.columns))
    far = max(reach(rows.steps, size, rows.offset) for rows, size in zip((left, right), sizes, strict=True))
    wide = ".to(tl.int64)" if max(far, node.size) >= NARROW - 2**20 else ""
    ends = [f"(batch < {found.batches})"] if found.batches % each else []
    down = [f"(row < {found.rows})"] if found.rows != high else []
    over = [f"(place < {found.columns})"] if found.columns != across else []
    pairs = (
        ("left", left, ("batch", "row", "k"), ends + down),
        ("right", right, ("batch", "k", "place"), ends + over),
    )
    loads = []
    for side, rows, indices, masks in pairs:
        terms = [times(index, step) for index, step in zip(indices, rows.steps, strict=True)]
        mask = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
        at = summed(*terms, str(rows.offset) if rows.offset else "")
        loads.append(f"tl.load({side} + {at}{mask})")
    lines = [
        f"batch = (tl.program_id(0){wide} * {each} + tl.arange(0, {each}))[:, None, None]",
        f"row = tl.arange(0, {high})[None, :, None]",
        f"place = tl.arange(0, {across})[None, None, :]",
        f"product = tl.zeros([{each}, {high}, {across}], tl.float32)",
        f"for k in tl.static_range({found.inner}):",
        f"    product += {loads[0]} * {loads[1]}",
        f"i = (batch * {found.rows} + row) * {found.columns} + place",
        *after.flat("product", " & ".join(ends + down + over)),
    ]
    said = f"{found.batches} times {found.rows} x {found.inner} by {found.columns}"
    head = f"# products of {said}{after.said}\n@triton.jit\n"
    text = f"{head}def {name}({', '.join(['left', 'right', *after.parameters])}):\n" + indented(lines)
    steps = (launch(name, [-(-found.batches // each)], [left.memory, right.memory, *after.given], 4),)
    return WrittenKernel(name, text, steps, functions.used_in(text))
