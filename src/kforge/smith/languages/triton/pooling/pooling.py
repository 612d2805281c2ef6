"""Finds pooling and depthwise convolutions, and writes each as a kernel with the maps that follow
(`sliding_windows.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kforge.smith.fusion.regions import only_read_by
from kforge.smith.ir.windows import POOLS, Window
from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.pooling.sliding_windows import SlidingWindow
from kforge.smith.languages.triton.statements import INDENT, launch
from kforge.smith.languages.triton.tails import tail_of
from kforge.smith.patterns.convolutions import convolution_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Graph, Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.triton.tails import Tail

TENSORS = ("x", "weight", "bias")


def kernel(name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
    """Return the kernel of a pooling or a depthwise convolution with the elementwise operations that follow it
    (`tail`), or None for other calls."""
    window, names = _window(node, context.graph)
    (other,) = beside(node, tail, context.graph) or (None,)
    after = tail_of(node, tail, context, other.name if other is not None else "")
    if window is None or after is None:
        return None
    given = [context.elements(each) for each in names]
    text, slide = _text(
        name, window, after, len(given), _window(other, context.graph)[0] if other is not None else None
    )
    steps = (launch(name, [slide.work.programs], [*given, *after.given], slide.work.warps),)
    return WrittenKernel(name, text, steps, functions.used_in(text))


def _window(node: Node, graph: Graph) -> tuple[Window | None, tuple[str, ...]]:
    """Return the window of a call, and the names of its operands: the input, and for a convolution the weight and the
    bias. The window is None if the call is not supported."""
    if (form := convolution_of(node, graph)) is not None:
        return form.window if form.is_depthwise else None, (form.x, form.weight, *([form.bias] if form.bias else []))
    packet = node.function.removeprefix("aten.").partition(".")[0]
    if packet not in POOLS or not node.size or graph[node.sources[0]].dtype != "float32":
        return None, ()
    positional, named = node.arguments
    window = Window.pooling(packet, graph[node.sources[0]].shape, node.shape, positional[1:], named)
    return window, (node.sources[0],)


def beside(node: Node, tail: Region | None, graph: Graph) -> tuple[Node, ...]:
    """Return another pooling over the same windows, whose result the same region of maps (`tail`) reads, so that one
    kernel computes both. Empty if there is none."""
    window, given = _window(node, graph)
    if window is None or tail is None or window.packet not in POOLS or any(window.padding):
        return ()
    for other in only_read_by(tail, graph):
        asked, names = _window(other, graph) if other.kind == "call" and other.name != node.name else (None, ())
        if (
            asked is not None
            and names == given
            and replace(asked, packet=window.packet, counts_padding=True) == replace(window, counts_padding=True)
        ):
            return (other,)
    return ()


def _text(name: str, window: Window, after: Tail, tensors: int, other: Window | None) -> tuple[str, SlidingWindow]:
    is_convolution = window.packet not in POOLS
    channels = after.node.shape[-len(window.sizes) - 1] if is_convolution else 1
    bias = tensors == len(TENSORS)
    slide = SlidingWindow(window, other=other, weights=is_convolution, bias=bias, channels=channels)
    given = ", ".join([*TENSORS[:tensors], *after.parameters])
    packets = window.packet if other is None else f"{other.packet} and {window.packet}"
    head = f"# {packets}: {window.title}{after.said}\n@triton.jit\ndef {name}({given}):\n"
    return head + "\n".join(INDENT + line for line in slide.lines(after)) + "\n", slide
