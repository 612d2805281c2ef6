"""Calls of torch that are convolutions, in one form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.smith.graph import Ref
from kforge.smith.windows import Window, each

if TYPE_CHECKING:
    from kforge.smith.graph import Graph, Node

_DEFAULTS = (None, None, None, 1, 0, 1, 1)
"""Of input, weight, bias, stride, padding, dilation and groups."""


@dataclass(frozen=True)
class Convolution:
    """Padded with zeros on both sides alike."""

    images: int
    channels: int
    out: int
    groups: int
    window: Window
    """How it slides over the planes of the input."""
    x: str
    weight: str
    bias: str
    """The empty name where there is none."""

    @property
    def taps(self) -> int:
        return math.prod(self.window.window)

    @property
    def places(self) -> int:
        """Outputs of an image and a channel."""
        return math.prod(self.window.outputs)

    @property
    def is_depthwise(self) -> bool:
        """Whether every channel has a filter of its own."""
        return self.groups == self.channels == self.out


def convolution_of(node: Node, graph: Graph) -> Convolution | None:
    """What a call convolves; None where it is no convolution, or one of another form."""
    if node.kind != "call" or node.dtype != "float32" or any(graph[s].dtype != "float32" for s in node.sources):
        return None
    packet = node.function.removeprefix("aten.").removesuffix(".default")
    positional, named = node.arguments
    if packet not in ("conv1d", "conv2d", "conv3d") or named or not node.size:
        return None
    given: list[Any] = [*positional, *_DEFAULTS[len(positional) :]]
    x, weight, bias, stride, padding, dilation, groups = given
    if not isinstance(x, Ref) or not isinstance(weight, Ref) or isinstance(padding, str):
        return None
    rank = int(packet[4])
    if len(graph[x.name].shape) != rank + 2:  # an image without a batch
        return None
    images, channels, *sizes = graph[x.name].shape
    window = Window(
        packet, images * channels, tuple(sizes), node.shape[2:], graph[weight.name].shape[2:],
        stride=each(stride, rank), padding=each(padding, rank), dilation=each(dilation, rank),
    )  # fmt: skip
    named_bias = bias.name if isinstance(bias, Ref) else ""
    return Convolution(images, channels, node.shape[1], groups, window, x.name, weight.name, named_bias)
