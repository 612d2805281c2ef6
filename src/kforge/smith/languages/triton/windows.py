"""Pooling, and convolutions of each channel for itself, with the maps that follow them (`sliding.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.convolutions import convolution_of
from kforge.smith.languages import Kernel
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.sliding import Slide
from kforge.smith.languages.triton.statements import INDENT, launch
from kforge.smith.languages.triton.tails import tail_of
from kforge.smith.windows import Window, by

if TYPE_CHECKING:
    from kforge.smith.graph import Graph, Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.triton.tails import Tail
    from kforge.smith.regions import Region

POOLS = frozenset({"max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"})
TENSORS = ("x", "weight", "bias")


def kernel(name: str, node: Node, tail: Region | None, context: Context) -> Kernel | None:
    """The kernel of a pooling or depthwise convolution with its tail, or None."""
    window, names = _window(node, context.graph)
    after = tail_of(node, tail, context)
    if window is None or after is None:
        return None
    given = [context.elements(each) for each in names]
    text, slide = _text(name, window, after, len(given))
    steps = (launch(name, [slide.programs], [*given, *after.given], slide.warps),)
    return Kernel(name, text, steps, functions.used_in(text))


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


def _text(name: str, window: Window, after: Tail, tensors: int) -> tuple[str, Slide]:
    is_convolution = window.packet not in POOLS
    channels = after.node.shape[-len(window.sizes) - 1] if is_convolution else 1
    slide = Slide(window, weights=is_convolution, bias=tensors == len(TENSORS), channels=channels)
    given = ", ".join([*TENSORS[:tensors], *after.parameters])
    said = f"windows of {by(window.window)}, {by(window.stride)} apart, padded by {by(window.padding)}"
    head = f"# {window.packet}: {said}{after.said}\n@triton.jit\ndef {name}({given}):\n"
    return head + "\n".join(INDENT + line for line in slide.lines(after)) + "\n", slide
