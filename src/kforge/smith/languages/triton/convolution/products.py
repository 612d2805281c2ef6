"""Writes convolutions with float32 results as products of half-precision parts (`halves.py`). The matrix of windows
(im2col) is never stored.

A block of the product has output positions as rows and filters as columns, so that neighbouring threads store to
neighbouring addresses. One index counts through the window's elements and the input channels (`split_inputs.py`). The
weights have one scale per filter. A transposed convolution is written as an ordinary one with several outputs per
position. Groups are separate products.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.smith.ir.windows import by
from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.convolution.split_inputs import SplitConvolution, largest, split_input
from kforge.smith.languages.triton.plan import TritonPlan
from kforge.smith.languages.triton.product.halves import SCALED, STEP, TILE, Parts, Rows, indented, split
from kforge.smith.languages.triton.product.tiled import LAUNCH, MEMORY, SINGLE, WORTH, multiplying
from kforge.smith.languages.triton.statements import launch
from kforge.smith.languages.triton.tails import tail_of
from kforge.smith.patterns.convolutions import Convolution, convolution_of, transposed_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.triton.tails import Tail
    from kforge.smith.patterns.convolutions import Transposed

CHANNELS = 16
"""The number of input channels per group must be a multiple of this number, so that reads are aligned."""
NARROWEST = 16
"""Fewest filters in a block of the product: the least that a matrix unit multiplies."""
LIBRARY, GROUPED, TRANSPOSED = 0.8, 0.2, 0.35
"""Shares of the peak arithmetic rate that torch's own convolutions are assumed to reach: ordinary, grouped, and
transposed ones."""


def kernel(name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
    """Return a kernel for a convolution and its tail, or None if the call is not a supported convolution or torch's own
    kernel is expected to be faster."""
    assert isinstance(context.plan, TritonPlan)
    if not context.plan.split:
        return None
    form = convolution_of(node, context.graph) or transposed_of(node, context.graph)
    if form is None or form.channels // form.groups % CHANNELS:
        return None
    made = {each: f"{node.name}_{each}" for each in ("largest", "halves", "scales", "weights", "weight_scales")}
    found, filters = _slide(form, node, context)
    if context.plan.split == 1 and not _is_worth_it(found, is_transposed=bool(filters)):
        return None
    after = tail_of(node, tail, context)
    if after is None:
        return None
    weight, bias = found.weight, [context.elements(form.bias)] if form.bias else []
    x, grid = context.elements(form.x), [_tiles(found), *([found.groups] if found.groups > 1 else [])]
    operands = [made["halves"], made["scales"], made["weights"], made["weight_scales"], *bias, *after.given]
    steps = (
        *filters,
        f"{made['largest']} = {context.empty((2 * found.samples * found.pieces,), 'float32')}",
        f"{made['halves']} = {context.empty((2 * found.size,), 'float16')}",
        f"{made['scales']} = {context.empty((found.samples,), 'float32')}",
        f"{made['weights']} = {context.empty((2 * weight.size,), 'float16')}",
        f"{made['weight_scales']} = {context.empty((weight.rows,), 'float32')}",
        launch(f"{name}_largest", [found.samples * found.pieces], [x, made["largest"]], 8),
        launch(f"{name}_input", [found.programs], [x, made["largest"], made["halves"], made["scales"]], 8),
        launch(f"{name}_weight", [weight.programs], [weight.given.memory, made["weights"], made["weight_scales"]], 8),
        # narrow blocks leave room for two instances on a multiprocessor: one multiplies while the other waits
        launch(name, grid, operands, 8, 3) if weight.tile == TILE else launch(name, grid, operands, 4, 2),
    )
    texts = [
        largest(f"{name}_largest", found),
        split_input(f"{name}_input", found),
        split(f"{name}_weight", weight),
        _multiply(name, found, after, has_bias=bool(bias)),
    ]
    text = "\n\n".join(texts)
    return WrittenKernel(name, text, steps, functions.used_in(text))


def _slide(form: Convolution | Transposed, node: Node, context: Context) -> tuple[SplitConvolution, list[str]]:
    """Return the convolution as a matrix product, and the Python statements that must run before it.

    Only a transposed convolution needs such statements: they rearrange its weights.
    """
    each, filters, given = form.channels // form.groups, form.out // form.groups, context.elements(form.weight)
    if isinstance(form, Convolution):
        order = (0, *range(2, len(form.window.kernel_size) + 2), 1)
        length = form.taps * each
        rows = Rows(
            f"{given}.permute({order}).contiguous()", form.groups, filters, length, (filters * length, length, 1)
        )
        return SplitConvolution.ordinary(form, Parts("weight", rows, NARROWEST)), []
    length, name = math.prod(form.window) * each, f"{node.name}_filters"
    whole = tuple(step * size for step, size in zip(form.stride, form.window, strict=True))
    holes = ", ".join(f":{size}:{hole}" for size, hole in zip(form.spread, form.dilation, strict=True))
    rank = len(form.window)
    apart = [size for pair in zip(form.window, form.stride, strict=True) for size in pair]
    reach, phase = [3 + 2 * axis for axis in range(rank)], [4 + 2 * axis for axis in range(rank)]
    steps = [
        f"{name} = {context.empty((form.channels, filters, *whole), 'float32')}.zero_()",
        f"{name}[:, :, {holes}] = {given}",
        f"{name} = {name}.reshape({(form.groups, each, filters, *apart)}).flip({tuple(reach)})",
        f"{name} = {name}.permute({(0, 2, *phase, *reach, 1)}).contiguous()",
    ]
    count = filters * math.prod(form.stride)
    rows = Rows(name, form.groups, count, length, (count * length, length, 1))
    return SplitConvolution.transposed(form, Parts("weight", rows, NARROWEST)), steps


def _tiles(found: SplitConvolution) -> int:
    return -(-found.count // TILE) * (found.weight.padded // found.weight.tile)


def _is_worth_it(found: SplitConvolution, *, is_transposed: bool) -> bool:
    weight = found.weight
    ours = multiplying(_tiles(found) * found.groups, TILE, weight.tile, weight.length)
    ours += 16 * found.size / MEMORY + (9 if is_transposed else 5) * LAUNCH
    operations = 2 * found.count * weight.given.batch * weight.given.count * weight.given.length
    share = TRANSPOSED if is_transposed else LIBRARY if found.groups == 1 else GROUPED
    return ours < WORTH * (operations / (share * SINGLE) + LAUNCH)


# --- the product --------------------------------------------------------------------------------------------------


def _multiply(name: str, found: SplitConvolution, after: Tail, *, has_bias: bool) -> str:
    weight, places = found.weight, math.prod(found.places)
    across, block = weight.padded // weight.tile, f"[{TILE}, {weight.tile}]"
    is_ragged = weight.given.length != weight.length
    limit = f", mask=(k < {weight.given.length})[None, :], other=0.0" if is_ragged else ""
    loop = [
        f"for start in range(0, {weight.length}, {STEP}):",
        f"    k = start + tl.arange(0, {STEP})",
        f"    x_at = corner[:, None] + ({_reach(found)})[None, :]",
        f"    filter_at = row[None, :] * {weight.length} + k[:, None]",
        f"    x_high = tl.load(x + x_at{limit})",
        "    filter_high = tl.load(filters + filter_at)",
    ]
    last = f"sample = tl.minimum(spot // {places}, {found.samples - 1})  # later positions are not stored"
    lines = [
        "tile = tl.program_id(0)",
        *(["group = tl.program_id(1)"] if found.groups > 1 else []),
        f"spot = (tile // {across} * {TILE} + tl.arange(0, {TILE})){found.wide}",
        f"sample = spot // {places}" if found.count % TILE == 0 else last,
        f"place = spot % {places}",
        f"filter = tile % {across} * {weight.tile} + tl.arange(0, {weight.tile})",
        f"row = group * {weight.padded} + filter" if found.groups > 1 else "row = filter",
        f"corner = {_corner(found)}",
        f"total = tl.zeros({block}, tl.float32)",
        *loop,
        f"    x_low = tl.load(x + {found.size} + x_at{limit})",
        f"    filter_low = tl.load(filters + {weight.size} + filter_at)",
        "    # matrix units truncate their sums, so each piece is summed alone and then added to the total",
        "    part = tl.dot(x_low, filter_high)",
        "    part = tl.dot(x_high, filter_low, part)",
        "    part = tl.dot(x_high, filter_high, part)",
        "    total += part",
        "row_scale = tl.load(x_scale + sample)",
        "column_scale = tl.load(filter_scale + row)",
        *SCALED,
        f"    total = tl.zeros({block}, tl.float32)",
        *("    " + line for line in loop),
        "        total = tl.dot(x_high, filter_high, total)",
        '    product = tl.where(tl.abs(total) < float("inf"), product, total)',
        *_results(found, after, has_bias=has_bias),
    ]
    given = ["x", "x_scale", "filters", "filter_scale", *(["bias"] if has_bias else []), *after.parameters]
    said = f"windows of {by(found.window)} x {found.channels // found.groups}, {found.count} places by {found.out}"
    return f"# {after.node.origin}: {said}{after.said}\n@triton.jit\ndef {name}({', '.join(given)}):\n" + indented(
        lines
    )


def _corner(found: SplitConvolution) -> str:
    """Return the expression for the address of the first element of each output's window."""
    terms = [f"sample * {math.prod(found.padded) * found.channels}"]
    for axis, size in enumerate(found.places):
        terms.append(f"({_along(axis, size, found)}) * {found.stride[axis] * found.step(axis)}")
    if found.groups > 1:
        terms.append(f"group * {found.channels // found.groups}")
    return " + ".join(terms)


def _along(axis: int, size: int, found: SplitConvolution) -> str:
    below = math.prod(found.places[axis + 1 :])
    return f"place // {below} % {size}" if below > 1 else f"place % {size}"


def _reach(found: SplitConvolution) -> str:
    """Return the expression for the offset of element `k` from a window's first element. `k` counts the positions in
    the window, and the channels at each position."""
    channels = found.channels // found.groups
    terms = [f"k % {channels}"]
    for axis, size in enumerate(found.window):
        if size > 1:
            below = math.prod(found.window[axis + 1 :]) * channels
            terms.append(f"k // {below} % {size} * {found.dilation[axis] * found.step(axis)}")
    return " + ".join(terms)


def _results(found: SplitConvolution, after: Tail, *, has_bias: bool) -> list[str]:
    """Return the lines that add the bias, apply the tail and store a block of the product."""
    each, phases = found.out // found.groups, math.prod(found.phases)
    lines, masks = ["sample = sample[:, None]", "place = place[:, None]"], {}
    if found.weight.given.count != found.weight.padded:
        masks["channel"] = f"(filter < {found.weight.given.count})[None, :]"
    if found.count % TILE:
        masks["place"] = f"(spot < {found.count})[:, None]"
    own = "filter" if phases == 1 else f"filter // {phases}"
    lines.append(f"channel = ({f'group * {each} + {own}' if found.groups > 1 else own})[None, :]")
    if has_bias:
        known = f", mask={masks['channel']}, other=0.0" if "channel" in masks else ""
        lines.append(f"product += tl.load(bias + channel{known})")
    if phases == 1:
        counts = {"sample": found.samples, "channel": found.out, "place": math.prod(found.outputs)}
        return [*lines, *after.block("product", counts, masks)]
    lines += ["phase = filter[None, :]"]
    address = [f"(sample * {found.out} + channel) * {math.prod(found.outputs)}"]
    inside = list(masks.values())
    for axis, size in enumerate(found.outputs):
        below, step = math.prod(found.phases[axis + 1 :]), math.prod(found.outputs[axis + 1 :])
        phase = f"phase // {below} % {found.phases[axis]}" if below > 1 else f"phase % {found.phases[axis]}"
        along = f"({_along(axis, found.places[axis], found)}) * {found.phases[axis]} + {phase}"
        missing = found.missing[axis]
        lines.append(f"out{axis} = {along}{f' - {missing}' if missing else ''}")
        address.append(f"out{axis} * {step}" if step > 1 else f"out{axis}")
        inside += [f"(out{axis} >= 0)"] if missing else []
        inside += [f"(out{axis} < {size})"] if found.places[axis] * found.phases[axis] - missing > size else []
    lines.append(f"i = {' + '.join(address)}")
    return [*lines, *after.flat("product", " & ".join(inside))]
