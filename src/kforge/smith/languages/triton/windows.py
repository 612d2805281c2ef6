"""Pooling, and convolutions of each channel for itself: every output walks through its window.

Neighbouring outputs have most of their windows in common, which caches know.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.smith.convolutions import convolution_of
from kforge.smith.languages import Kernel
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.indices import NARROW, block_of
from kforge.smith.languages.triton.statements import INDENT, launch
from kforge.smith.languages.triton.tails import tail_of
from kforge.smith.windows import Window, by

if TYPE_CHECKING:
    from kforge.smith.graph import Graph, Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.triton.tails import Tail
    from kforge.smith.regions import Region

POOLS = frozenset({"max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"})
BLOCK = 512
UNROLLED = 64
"""Places of a window that are written out one after the other."""


def kernel(name: str, node: Node, tail: Region | None, context: Context) -> Kernel | None:
    """The kernel of a pooling or depthwise convolution with its tail, or None."""
    window, names = _window(node, context.graph)
    after = tail_of(node, tail, context)
    if window is None or after is None:
        return None
    given = [context.elements(each) for each in names]
    text, programs, warps = _text(name, window, after, len(given))
    return Kernel(name, text, (launch(name, [programs], [*given, *after.given], warps),), functions.used_in(text))


def _window(node: Node, graph: Graph) -> tuple[Window | None, tuple[str, ...]]:
    """The window of a call, and what it is given: the input, and of a convolution its weight and bias."""
    if (form := convolution_of(node, graph)) is not None:
        return form.window if form.is_depthwise else None, (form.x, form.weight, *([form.bias] if form.bias else []))
    packet = node.function.removeprefix("aten.").partition(".")[0]
    if packet not in POOLS or not node.size or graph[node.sources[0]].dtype != "float32":
        return None, ()
    positional, named = node.arguments
    window = Window.pooling(packet, graph[node.sources[0]].shape, node.shape, positional[1:], named)
    return window, (node.sources[0],)


def _text(name: str, window: Window, after: Tail, tensors: int) -> tuple[str, int, int]:
    """The kernel, its programs and their warps."""
    is_convolution = window.packet not in POOLS
    places, programs, block, mask = _planewise(window, after) if is_convolution else _throughout(window)
    inside = "inside" if mask else ""
    lines = [*places, f"inside = {mask}"] if mask else places
    for axis, size in enumerate(window.outputs):
        below = math.prod(window.outputs[axis + 1 :])
        count = f"place // {below} % {size}" if below > 1 else f"place % {size}"
        lines.append(f"first{axis} = ({count}) * {window.stride[axis]} - {window.padding[axis]}")
    lines.append(f"result = tl.full([{block}], {_start(window)}, tl.float32)")
    lines += _walk(window, inside, is_convolution)
    if is_convolution and tensors > 2:
        lines.append("result += tl.load(bias + channel)")
    elif window.packet.startswith("avg"):
        lines.append(f"result = result / {_count(window)}")
    lines += after.flat("result", inside)
    given = ", ".join([*("x", "weight", "bias")[:tensors], *after.parameters])
    said = f"windows of {by(window.window)}, {by(window.stride)} apart, padded by {by(window.padding)}"
    head = f"# {window.packet}: {said}{after.said}\n@triton.jit\ndef {name}({given}):\n"
    return head + "\n".join(INDENT + line for line in lines) + "\n", programs, max(1, block // 128)


def _throughout(window: Window) -> tuple[list[str], int, int, str]:
    """Blocks of outputs wherever they lie: the first lines, the programs, their outputs, and the mask."""
    outputs = math.prod(window.outputs)
    total = window.planes * outputs
    block = min(BLOCK, block_of(total))
    lines = [
        f"i = tl.program_id(0){_wide(window)} * {block} + tl.arange(0, {block})",
        f"plane = i // {outputs}",
        f"place = i % {outputs}",
    ]
    return lines, -(-total // block), block, f"i < {total}" if total % block else ""


def _planewise(window: Window, after: Tail) -> tuple[list[str], int, int, str]:
    """Blocks of one plane each, whose outputs have the same weights."""
    outputs, channels = math.prod(window.outputs), after.node.shape[-len(window.sizes) - 1]
    block = min(BLOCK, block_of(outputs))
    blocks = -(-outputs // block)
    lines = [
        f"plane = tl.program_id(0){_wide(window)} // {blocks}",
        f"channel = plane % {channels}",
        f"place = tl.program_id(0) % {blocks} * {block} + tl.arange(0, {block})",
        f"i = plane * {outputs} + place",
    ]
    return lines, window.planes * blocks, block, f"place < {outputs}" if outputs % block else ""


def _wide(window: Window) -> str:
    largest = window.planes * max(math.prod(window.outputs), math.prod(window.sizes))
    return ".to(tl.int64)" if largest >= NARROW - 2**20 else ""


def _start(window: Window) -> str:
    return 'float("-inf")' if window.is_maximum else "0.0"


def _walk(window: Window, mask: str, is_convolution: bool) -> list[str]:
    """Loops over the window, innermost what is done with one element."""
    lines, indent = [], ""
    loop = "tl.static_range" if math.prod(window.window) <= UNROLLED else "range"
    masks = [mask] if mask else []
    terms, weights = [f"plane * {math.prod(window.sizes)}"], [f"channel * {math.prod(window.window)}"]
    for axis in range(len(window.sizes)):
        lines.append(f"{indent}for step{axis} in {loop}({window.window[axis]}):")
        indent += INDENT
        lines.append(f"{indent}from{axis} = first{axis} + step{axis} * {window.dilation[axis]}")
        if _leaves(window, axis):
            masks.append(f"(from{axis} >= 0) & (from{axis} < {window.sizes[axis]})")
        for parts, index, sizes in ((terms, f"from{axis}", window.sizes), (weights, f"step{axis}", window.window)):
            below = math.prod(sizes[axis + 1 :])
            parts.append(f"{index} * {below}" if below > 1 else index)
    inside = f", mask={' & '.join(masks)}, other={_start(window)}" if masks else ""
    lines.append(f"{indent}value = tl.load(x + {' + '.join(terms)}{inside})")
    if is_convolution:
        lines.append(f"{indent}result += value * tl.load(weight + {' + '.join(weights)})")
    elif window.is_maximum:
        lines.append(f"{indent}result = tl.maximum(result, value, propagate_nan=tl.PropagateNan.ALL)")
    else:
        lines.append(f"{indent}result += value")
    return lines


def _leaves(window: Window, axis: int) -> bool:
    """Whether some window goes beyond the plane along this axis."""
    last = (window.outputs[axis] - 1) * window.stride[axis] - window.padding[axis]
    return window.padding[axis] > 0 or last + (window.window[axis] - 1) * window.dilation[axis] >= window.sizes[axis]


def _count(window: Window) -> str:
    """Elements of a window that an average counts."""
    if window.counts_padding or not any(window.padding):
        return f"{math.prod(window.window)}.0"
    counts = (
        f"(tl.minimum(first{axis} + {window.window[axis]}, {window.sizes[axis]}) - tl.maximum(first{axis}, 0))"
        for axis in range(len(window.sizes))
    )
    return f"({' * '.join(counts)}).to(tl.float32)"
