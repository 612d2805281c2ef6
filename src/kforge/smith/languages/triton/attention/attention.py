"""Writes attention kernels with float32 results that never store the scores. Both matrix products use half-precision
parts of each number (`halves.py`).

A program instance has a block of queries and goes through all keys. It keeps, for each query, the largest score, the
sum of weights and the weighted sum of values so far. Weights are scaled by 2^13, so that small ones do not underflow in
half precision. A value that is not finite makes every result NaN to which it contributes. If there is only one query,
and no bias or causal mask, no matrix units are used, and keys and values are read without splitting them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.smith.ir.graph import contiguous, placed
from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.indices import NARROW, block_of, summed, times
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.plan import TritonPlan
from kforge.smith.languages.triton.product.halves import STEP, TILE, Parts, indented, rows_of, split, split_steps
from kforge.smith.languages.triton.product.tiled import LAUNCH, MEMORY, SINGLE, WORTH, multiplying
from kforge.smith.languages.triton.statements import grid_of, launch
from kforge.smith.languages.triton.tails import tail_of
from kforge.smith.patterns.attentions import attention_of
from kforge.smith.patterns.products import matrices

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.triton.tails import Tail
    from kforge.smith.patterns.attentions import Attention

WIDEST = 128
"""Most channels of a head for which a kernel is written."""
SLOWER = 2.0
"""Estimated time of attention, divided by the time of its two products alone. The softmax between them makes the
difference."""
LIBRARY = 0.7
"""Share of the peak arithmetic rate that torch's own attention is assumed to reach."""
KEYS = 64
"""Number of keys that are read at a time if there is only one query."""


def kernel(name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
    """Return a kernel for attention and its tail, or None if the call is not attention or torch's own kernel is
    expected to be faster."""
    assert isinstance(context.plan, TritonPlan)
    form = attention_of(node, context.graph) if context.plan.split else None
    if form is None or form.width > WIDEST:
        return None
    after = tail_of(node, tail, context)
    if after is None:
        return None
    if form.queries == 1 and not form.bias and not form.causal:
        return _alone(name, form, after, context)
    return _together(name, node, form, after, context)


def _together(name: str, node: Node, form: Attention, after: Tail, context: Context) -> WrittenKernel | None:
    graph, shared = context.graph, context.graph[form.key].shape[1] == 1 < form.heads
    batches, beside = form.batch * form.heads, form.batch * context.graph[form.key].shape[1]
    if context.graph[form.value].shape[1] != context.graph[form.key].shape[1]:
        return None
    query, key, value = (matrices(graph, each, graph[each].shape[:2]) for each in (form.query, form.key, form.value))
    parts = (
        Parts("query", rows_of(query, batches, form.queries, form.width, context), TILE),
        Parts("key", rows_of(key, beside, form.keys, form.width, context)),
        Parts("value", rows_of(value.transposed(), beside, form.width, form.keys, context)),
    )
    assert isinstance(context.plan, TritonPlan)
    if context.plan.split == 1 and not _is_worth_it(form, parts):
        return None
    steps, given = split_steps(name, node.name, parts, context)
    place = placed(graph)[form.bias] if form.bias else None
    given += [context.memory(place.base)] if place else []
    strides = place.strides if place else (0,) * 4
    if form.bias:
        sizes = graph[form.bias].shape
        strides = tuple(0 if size == 1 else step for size, step in zip(sizes, strides, strict=True))
    bias = (strides, place.offset) if place else None
    grid, *_ = grid_of(parts[0].padded // TILE, batches)
    steps.append(launch(name, grid, [*given, *after.given], 8, 2))
    text = "\n\n".join(
        [*(split(f"{name}_{p.name}", p) for p in parts), _attend(name, form, parts, after, bias, shared)]
    )
    return WrittenKernel(name, text, tuple(steps), functions.used_in(text))


def _is_worth_it(form: Attention, parts: tuple[Parts, Parts, Parts]) -> bool:
    share = 0.5 if form.causal and form.queries == form.keys else 1.0
    tiles = form.batch * form.heads * parts[0].padded // TILE
    products = 2 * multiplying(tiles, TILE, parts[2].padded, parts[2].length)
    ours = SLOWER * share * products + sum(12 * each.size for each in parts) / MEMORY + 4 * LAUNCH
    operations = share * 4 * form.batch * form.heads * form.queries * form.keys * form.width
    return ours < WORTH * (operations / (LIBRARY * SINGLE) + LAUNCH)


def _attend(
    name: str, form: Attention, parts: tuple[Parts, Parts, Parts], after: Tail,
    bias: tuple[tuple[int, ...], int] | None, shared: bool,
) -> str:  # fmt: skip
    query, key, value = parts
    width, log2e = query.length, math.log2(math.e)
    wide = ".to(tl.int64)" if max(*(2 * each.size for each in parts), after.node.size) >= NARROW - 2**20 else ""
    _, tile, batch = grid_of(query.padded // TILE, query.given.batch)
    end = f"tl.minimum(({tile} + 1) * {TILE}, {form.keys})" if form.causal else str(form.keys)
    unseen = [f"(column < {form.keys})[None, :]"] if form.keys % STEP else []
    unseen += ["(row[:, None] >= column[None, :])"] if form.causal else []
    lines = [
        f"batch = {batch}{wide}",
        f"row = {tile} * {TILE} + tl.arange(0, {TILE})",
        f"beside = batch // {form.heads}" if shared else "beside = batch",
        f"channel = tl.arange(0, {width})",
        f"query_at = (batch * {query.padded} + row[:, None]) * {width} + channel[None, :]",
        "query_high = tl.load(query + query_at)",
        f"query_low = tl.load(query + {query.size} + query_at)",
        f"query_inverse = tl.abs(tl.load(query_scale + batch * {query.padded} + row)) * {form.scale * log2e!r}",
        f'top = tl.full([{TILE}], -float("inf"), tl.float32)',
        f"total = tl.zeros([{TILE}], tl.float32)",
        f"mixed = tl.zeros([{TILE}, {value.padded}], tl.float32)",
        f"for start in range(0, {end}, {STEP}):",
        f"    column = start + tl.arange(0, {STEP})",
        f"    key_at = (beside * {key.padded} + column[None, :]) * {width} + channel[:, None]",
        "    key_high = tl.load(key + key_at)",
        f"    key_low = tl.load(key + {key.size} + key_at)",
        f"    key_inverse = tl.abs(tl.load(key_scale + beside * {key.padded} + column))",
        "    score = tl.dot(query_low, key_high)",
        "    score = tl.dot(query_high, key_low, score)",
        "    score = tl.dot(query_high, key_high, score)",
        "    score = score * query_inverse[:, None] * key_inverse[None, :]",
        *([f"    score += tl.load({_bias_at(form, *bias)}) * {log2e!r}"] if bias else []),
        *([f'    score = tl.where({" & ".join(unseen)}, score, -float("inf"))'] if unseen else []),
        "    higher = tl.maximum(top, tl.max(score, axis=1))",
        '    base = tl.where(higher == -float("inf"), 0.0, higher)  # all keys so far are masked',
        "    share = tl.exp2(score - base[:, None]) * 8192.0",
        "    fade = tl.exp2(top - base)",
        "    total = total * fade + tl.sum(share, axis=1)",
        "    top = higher",
        "    share_high = share.to(tl.float16)",
        "    share_low = (share - share_high.to(tl.float32)).to(tl.float16)",
        f"    value_at = (beside * {value.length} + column[:, None]) * {value.padded}"
        f" + tl.arange(0, {value.padded})[None, :]",
        "    value_high = tl.load(value + value_at)",
        f"    value_low = tl.load(value + {value.size} + value_at)",
        "    # matrix units truncate their sums, so each piece is summed alone and then added to the total",
        "    part = tl.dot(share_low, value_high)",
        "    part = tl.dot(share_high, value_low, part)",
        "    part = tl.dot(share_high, value_high, part)",
        "    mixed = mixed * fade[:, None] + part",
        f"place = tl.arange(0, {value.padded})[None, :]",
        f"value_inverse = tl.abs(tl.load(value_scale + beside * {value.padded} + place))",
        "product = mixed / tl.where(total == 0.0, 1.0, total)[:, None] * value_inverse",
        f"line = (batch * {form.queries} + row)[:, None]",
    ]
    masks = {}
    if form.queries != query.padded:
        masks["line"] = f"(row < {form.queries})[:, None]"
    if form.width != value.padded:
        masks["place"] = f"(place < {form.width})"
    lines += after.block("product", {"line": form.batch * form.heads * form.queries, "place": form.width}, masks)
    given = [f"{each.name}{end}" for each in parts for end in ("", "_scale")]
    given += [*(["bias"] if bias else []), *after.parameters]
    said = f"{form.queries} queries and {form.keys} keys of {form.width}{', causal' if form.causal else ''}"
    head = f"# attention of {form.batch * form.heads} times {said}{after.said}\n@triton.jit\n"
    return f"{head}def {name}({', '.join(given)}):\n" + indented(lines)


def _bias_at(form: Attention, strides: tuple[int, ...], offset: int) -> str:
    """Return the expression for the addresses of the bias. Beyond the last query and key it reads the last ones again;
    those results are not used."""
    image, head, down, across = strides
    row = "row" if form.queries % TILE == 0 else f"tl.minimum(row, {form.queries - 1})"
    column = "column" if form.keys % STEP == 0 else f"tl.minimum(column, {form.keys - 1})"
    terms = [
        times(f"(batch // {form.heads})", image), times(f"(batch % {form.heads})", head),
        times(f"{row}[:, None]", down), times(f"{column}[None, :]", across), str(offset) if offset else "",
    ]  # fmt: skip
    return f"bias + {summed(*terms)}"


# --- one query ----------------------------------------------------------------------------------------------------


def _alone(name: str, form: Attention, after: Tail, context: Context) -> WrittenKernel | None:
    graph = context.graph
    batches, heads = form.batch * form.heads, graph[form.key].shape[1]
    if heads != graph[form.value].shape[1]:
        return None
    given = [context.elements(each) for each in (form.query, form.key, form.value)]
    width, log2e = block_of(form.width), math.log2(math.e)
    (_, _, down, _), far = contiguous(graph[form.key].shape), graph[form.key].size
    wide = ".to(tl.int64)" if far >= NARROW else ""
    known = [] if width == form.width else [f"(channel < {form.width})"]
    seen = [] if form.keys % KEYS == 0 else [f"(row < {form.keys})"]
    limit = f", mask={' & '.join(seen + known)}, other=0.0" if seen + known else ""
    only = f", mask={known[0]}, other=0.0" if known else ""
    lines = [
        f"batch = tl.program_id(0){wide}",
        f"channel = tl.arange(0, {width})[None, :]",
        f"begin = batch * {form.keys * down}"
        if heads == form.heads
        else f"begin = batch // {form.heads} * {form.keys * down}",
        f"asked = tl.load(query + batch * {form.width} + channel{only}) * {form.scale * log2e!r}",
        'top = tl.full([1, 1], -float("inf"), tl.float32)',
        "total = tl.zeros([1, 1], tl.float32)",
        f"mixed = tl.zeros([1, {width}], tl.float32)",
        f"for start in range(0, {form.keys}, {KEYS}):",
        f"    row = start + tl.arange(0, {KEYS})[:, None]",
        f"    at = begin + row * {down} + channel",
        f"    keys = tl.load(key + at{limit})",
        f"    values = tl.load(value + at{limit})",
        "    score = tl.sum(asked * keys, axis=1, keep_dims=True)",
        *([f'    score = tl.where({seen[0]}, score, -float("inf"))'] if seen else []),
        "    higher = tl.maximum(top, tl.max(score, axis=0, keep_dims=True))",
        "    share = tl.exp2(score - higher)",
        "    fade = tl.exp2(top - higher)",
        "    total = total * fade + tl.sum(share, axis=0, keep_dims=True)",
        "    mixed = mixed * fade + tl.sum(share * values, axis=0, keep_dims=True)",
        "    top = higher",
        "product = mixed / total",
        f"i = batch * {form.width} + channel",
        *after.flat("product", known[0] if known else ""),
    ]
    head = f"# attention of {batches} times one query and {form.keys} keys of {form.width}{after.said}\n@triton.jit\n"
    text = f"{head}def {name}(query, key, value, {', '.join(after.parameters)}):\n" + indented(lines)
    steps = (launch(name, [batches], [*given, *after.given], 4, 3),)
    return WrittenKernel(name, text, steps, functions.used_in(text))
