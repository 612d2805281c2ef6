"""Convolutions in single precision as products of halves (`halves.py`), without the matrix of windows in memory.

The input is split once, channels last and padded with zeros, so that any window's channels lie side by side. A block of
the product has channels of the output down and places across; it walks through window and input channels as one index.
The input has one scale a sample, the weights one for each channel of the output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.convolutions import convolution_of
from kforge.smith.languages import Kernel
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.halves import (
    HALVES,
    ODD,
    PROCESSORS,
    SCALE,
    SIZE,
    STEP,
    TILE,
    Parts,
    Rows,
    indented,
    split,
)
from kforge.smith.languages.triton.indices import NARROW, block_of
from kforge.smith.languages.triton.plan import TritonPlan
from kforge.smith.languages.triton.products import HALF, LAUNCH, MEMORY, SINGLE, STAGES, WORTH
from kforge.smith.languages.triton.statements import launch
from kforge.smith.languages.triton.tails import tail_of
from kforge.smith.windows import by

if TYPE_CHECKING:
    from kforge.smith.convolutions import Convolution
    from kforge.smith.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.triton.tails import Tail
    from kforge.smith.regions import Region
    from kforge.smith.windows import Window

CHANNELS = 16
"""Channels of the input come in such numbers, or reads are not aligned."""
PIECE = 8192
"""Elements that a program looks through for the largest."""
SPOTS = 64
"""Places, and channels, that a splitting program turns."""
LIBRARY = 0.8
"""Of the arithmetic peak that the library's convolutions reach."""


@dataclass(frozen=True)
class Slide:
    """A window that slides over padded samples, and the weights that their channels are multiplied with."""

    samples: int
    channels: int
    window: Window
    weight: Parts

    @property
    def padded(self) -> tuple[int, ...]:
        return tuple(size + 2 * pad for size, pad in zip(self.window.sizes, self.window.padding, strict=True))

    @property
    def size(self) -> int:
        """Elements of the padded input."""
        return self.samples * math.prod(self.padded) * self.channels

    @property
    def places(self) -> int:
        return self.samples * math.prod(self.window.outputs)

    @property
    def pieces(self) -> int:
        """Parts of a sample that are looked through by a program each."""
        return min(512, -(-self.channels * math.prod(self.window.sizes) // PIECE))

    def step(self, axis: int) -> int:
        """Elements between neighbours along an axis of the padded input."""
        return math.prod(self.padded[axis + 1 :]) * self.channels


def kernel(name: str, node: Node, tail: Region | None, context: Context) -> Kernel | None:
    """A convolution and the maps that follow it; None where the library may be faster."""
    assert isinstance(context.plan, TritonPlan)
    form = convolution_of(node, context.graph) if context.plan.split else None
    if form is None or form.groups != 1 or form.channels % CHANNELS:
        return None
    found = _slide(form, context)
    if context.plan.split == 1 and not _is_worth_it(found):
        return None
    after = tail_of(node, tail, context)
    if after is None:
        return None
    bias = [context.elements(form.bias)] if form.bias else []
    x, turned = context.elements(form.x), math.prod(found.padded)
    blocks = found.samples * -(-turned // SPOTS) * -(-found.channels // SPOTS)
    made = {each: f"{node.name}_{each}" for each in ("largest", "halves", "scales", "weights", "weight_scales")}
    tiles = -(-found.places // TILE) * (found.weight.padded // found.weight.tile)
    operands = [made["weights"], made["weight_scales"], made["halves"], made["scales"], *bias, *after.given]
    steps = (
        f"{made['largest']} = {context.empty((2 * found.samples * found.pieces,), 'float32')}",
        f"{made['halves']} = {context.empty((2 * found.size,), 'float16')}",
        f"{made['scales']} = {context.empty((found.samples,), 'float32')}",
        f"{made['weights']} = {context.empty((2 * found.weight.size,), 'float16')}",
        f"{made['weight_scales']} = {context.empty((found.weight.rows,), 'float32')}",
        launch(f"{name}_largest", [found.samples * found.pieces], [x, made["largest"]], 8),
        launch(f"{name}_input", [blocks], [x, made["largest"], made["halves"], made["scales"]], 8),
        launch(
            f"{name}_weight",
            [found.weight.programs],
            [found.weight.given.memory, made["weights"], made["weight_scales"]],
            8,
        ),
        launch(name, [tiles], operands, 8, STAGES),
    )
    texts = [
        _largest(f"{name}_largest", found),
        _input(f"{name}_input", found),
        split(f"{name}_weight", found.weight),
        _multiply(name, found, after, has_bias=bool(bias)),
    ]
    text = "\n\n".join(texts)
    return Kernel(name, text, steps, functions.used_in(text))


def _slide(form: Convolution, context: Context) -> Slide:
    order = (0, *range(2, len(form.window.sizes) + 2), 1)
    memory = f"{context.elements(form.weight)}.permute({order}).contiguous()"
    length = form.taps * form.channels
    weight = Rows(memory, 1, form.out, length, (0, length, 1))
    return Slide(form.images, form.channels, form.window, Parts("weight", weight))


def _is_worth_it(found: Slide) -> bool:
    weight = found.weight
    tiles = -(-found.places // TILE) * (weight.padded // weight.tile)
    tile = 6 * weight.tile * TILE * weight.length / (HALF / PROCESSORS)
    ours = -(-tiles // PROCESSORS) * tile + 16 * found.size / MEMORY + 5 * LAUNCH
    theirs = 2 * found.places * weight.given.count * weight.given.length / (LIBRARY * SINGLE) + LAUNCH
    return ours < WORTH * theirs


# --- the input ----------------------------------------------------------------------------------------------------


def _largest(name: str, found: Slide) -> str:
    """The largest element of each piece of a sample, and whether there is one that is not finite."""
    count = found.channels * math.prod(found.window.sizes)
    share = -(-count // found.pieces)
    lines = [
        f"sample = tl.program_id(0){_wide(found)} // {found.pieces}",
        f"begin = tl.program_id(0) % {found.pieces} * {share}",
        f"end = tl.minimum(begin + {share}, {count})",
        "largest = tl.zeros([4096], tl.float32)",
        "odd = tl.zeros([4096], tl.float32)",
        "for start in range(begin, end, 4096):",
        "    i = start + tl.arange(0, 4096)",
        f"    value = tl.load(x + sample * {count} + i, mask=i < end, other=0.0)",
        *("    " + line for line in SIZE),
        "    largest = tl.maximum(largest, tl.where(finite, size, 0.0))",
        "    odd = tl.maximum(odd, tl.where(finite, 0.0, 1.0))",
        "tl.store(out + tl.program_id(0), tl.max(largest, axis=0))",
        f"tl.store(out + {found.samples * found.pieces} + tl.program_id(0), tl.max(odd, axis=0))",
    ]
    head = f"# the largest element of each sample, in {found.pieces} pieces\n@triton.jit\n"
    return f"{head}def {name}(x, out):\n" + indented(lines)


def _input(name: str, found: Slide) -> str:
    """The input scaled, split, padded and with its channels last."""
    window, spots = found.window, math.prod(found.padded)
    across, down = -(-found.channels // SPOTS), -(-spots // SPOTS)
    pieces = block_of(found.pieces)
    lines = [
        f"block = tl.program_id(0){_wide(found)}",
        f"sample = block // {across * down}",
        f"spot = (block // {across} % {down} * {SPOTS} + tl.arange(0, {SPOTS}))[:, None]",
        f"channel = (block % {across} * {SPOTS} + tl.arange(0, {SPOTS}))[None, :]",
        f"piece = tl.arange(0, {pieces})",
        f"at = parts + sample * {found.pieces} + piece",
        f"largest = tl.max(tl.load(at, mask=piece < {found.pieces}, other=0.0), axis=0)",
        f"odd = tl.load(at + {found.samples * found.pieces}, mask=piece < {found.pieces}, other=0.0)",
        "odd = tl.max(odd, axis=0)",
        *SCALE,
        f"tl.store(inverses + sample, inverse, mask=block % {across * down} == 0)",
        f"inside = (channel < {found.channels}) & (spot < {spots})",
    ]
    terms = [f"sample * {found.channels * math.prod(window.sizes)}", f"channel * {math.prod(window.sizes)}"]
    masks = ["inside"]
    for axis, size in enumerate(window.sizes):
        below, step = math.prod(found.padded[axis + 1 :]), math.prod(window.sizes[axis + 1 :])
        count = f"spot // {below} % {found.padded[axis]}" if below > 1 else f"spot % {found.padded[axis]}"
        lines.append(f"from{axis} = {count} - {window.padding[axis]}")
        terms.append(f"from{axis} * {step}" if step > 1 else f"from{axis}")
        masks.append(f"(from{axis} >= 0) & (from{axis} < {size})")
    lines += [
        f"value = tl.load(x + {' + '.join(terms)}, mask={' & '.join(masks)}, other=0.0)",
        *SIZE,
        *HALVES,
        f"at = (sample * {spots} + spot) * {found.channels} + channel",
        "tl.store(halves + at, high, mask=inside)",
        f"tl.store(halves + {found.size} + at, low, mask=inside)",
    ]
    head = f"# {found.samples} samples, padded to {by(found.padded)}, channels last, split into halves\n@triton.jit\n"
    return f"{head}def {name}(x, parts, halves, inverses):\n" + indented(lines)


def _wide(found: Slide) -> str:
    return ".to(tl.int64)" if max(2 * found.size, found.places * found.weight.padded) >= NARROW - 2**20 else ""


# --- the product --------------------------------------------------------------------------------------------------


def _multiply(name: str, found: Slide, after: Tail, *, has_bias: bool) -> str:
    weight, window = found.weight, found.window
    outputs, count, wide = math.prod(window.outputs), weight.given.count, _wide(found)
    downwards = weight.padded // weight.tile
    corner = [f"sample * {math.prod(found.padded) * found.channels}"]
    for axis, size in enumerate(window.outputs):
        below = math.prod(window.outputs[axis + 1 :])
        place = f"place // {below} % {size}" if below > 1 else f"place % {size}"
        corner.append(f"({place}) * {window.stride[axis] * found.step(axis)}")
    ragged = weight.given.length != weight.length
    limit = f", mask=(k < {weight.given.length})[:, None], other=0.0" if ragged else ""
    loop = [
        f"for start in range(0, {weight.length}, {STEP}):",
        f"    k = start + tl.arange(0, {STEP})",
        f"    left_at = channel[:, None] * {weight.length} + k[None, :]",
        f"    right_at = corner[None, :] + ({_reach(found)})[:, None]",
        "    left_high = tl.load(left + left_at)",
        f"    right_high = tl.load(right + right_at{limit})",
    ]
    block = f"[{weight.tile}, {TILE}]"
    lines = [
        "tile = tl.program_id(0)",
        f"channel = tile % {downwards} * {weight.tile} + tl.arange(0, {weight.tile})",
        f"column = (tile // {downwards} * {TILE} + tl.arange(0, {TILE})){wide}",
        "# beyond the last place it is computed again, and not stored",
        f"position = tl.minimum(column, {found.places - 1})",
        f"sample = position // {outputs}",
        f"place = position % {outputs}",
        f"corner = {' + '.join(corner)}",
        f"total = tl.zeros({block}, tl.float32)",
        *loop,
        f"    left_low = tl.load(left + {weight.size} + left_at)",
        f"    right_low = tl.load(right + {found.size} + right_at{limit})",
        "    # what matrix units add up stays short: they do not round",
        "    part = tl.dot(left_low, right_high)",
        "    part = tl.dot(left_high, right_low, part)",
        "    part = tl.dot(left_high, right_high, part)",
        "    total += part",
        "row_scale = tl.load(left_scale + channel)[:, None]",
        "column_scale = tl.load(right_scale + sample)[None, :]",
        "product = total * tl.minimum(tl.abs(row_scale * column_scale), 3e38)",
        *ODD.format("row_scale", "column_scale").splitlines(),
        f"    total = tl.zeros({block}, tl.float32)",
        *("    " + line for line in loop),
        "        total = tl.dot(left_high, right_high, total)",
        '    product = tl.where(tl.abs(total) < float("inf"), product, total)',
    ]
    if has_bias:
        known = f", mask=channel < {count}, other=0.0" if count != weight.padded else ""
        lines.append(f"product += tl.load(bias + channel{known})[:, None]")
    masks = {}
    if count != weight.padded:
        masks["channel"] = f"(channel < {count})"
    if found.places % TILE:
        masks["place"] = f"(column < {found.places})[None, :]"
    lines += ["sample = sample[None, :]", "channel = channel[:, None]", "place = place[None, :]"]
    lines += after.block("product", {"sample": found.samples, "channel": count, "place": outputs}, masks)
    given = ["left", "left_scale", "right", "right_scale", *(["bias"] if has_bias else []), *after.parameters]
    said = f"{window.packet}: windows of {by(window.window)} x {found.channels}, {found.places} places by {count}"
    return f"# {said}{after.said}\n@triton.jit\ndef {name}({', '.join(given)}):\n" + indented(lines)


def _reach(found: Slide) -> str:
    """From a window's corner to what `k` counts: places of the window, and channels at each."""
    window, terms = found.window, [f"k % {found.channels}"]
    for axis, size in enumerate(window.window):
        if size > 1:
            below = math.prod(window.window[axis + 1 :]) * found.channels
            terms.append(f"k // {below} % {size} * {window.dilation[axis] * found.step(axis)}")
    return " + ".join(terms)
