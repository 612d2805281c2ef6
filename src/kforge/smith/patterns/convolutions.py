"""Recognises calls of torch that are convolutions or transposed convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.smith.ir.graph import Ref
from kforge.smith.ir.windows import Window, each

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Graph, Node

_DEFAULTS = (None, None, None, 1, 0, 1, 1)
"""Default values of torch's arguments: input, weight, bias, stride, padding, dilation and groups."""


@dataclass(frozen=True)
class Convolution:
    """A convolution whose zero padding is the same on both sides."""

    images: int
    channels: int
    out: int
    groups: int
    window: Window
    """Sizes, stride, padding and dilation of the filter's window."""
    x: str
    weight: str
    bias: str
    """Name of the bias's node. Empty if there is none."""

    @property
    def taps(self) -> int:
        return math.prod(self.window.kernel_size)

    @property
    def places(self) -> int:
        """Number of outputs per image and channel."""
        return math.prod(self.window.outputs)

    @property
    def is_depthwise(self) -> bool:
        """Whether every channel has its own filter."""
        return self.groups == self.channels == self.out


def convolution_of(node: Node, graph: Graph) -> Convolution | None:
    """Return the description of a convolution call. None if the node is not a convolution, or uses options that kernels
    do not support."""
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
    if len(graph[x.name].shape) != rank + 2:  # an image without a batch axis
        return None
    images, channels, *sizes = graph[x.name].shape
    window = Window(
        packet, images * channels, tuple(sizes), node.shape[2:], graph[weight.name].shape[2:],
        stride=each(stride, rank), padding=each(padding, rank), dilation=each(dilation, rank),
    )  # fmt: skip
    named_bias = bias.name if isinstance(bias, Ref) else ""
    return Convolution(images, channels, node.shape[1], groups, window, x.name, weight.name, named_bias)


@dataclass(frozen=True)
class Transposed:
    """A transposed convolution of stride s, described as an ordinary convolution with s outputs per window position
    along each axis.

    Outputs whose distance is a multiple of the stride read the same input elements, each with its own part of the
    filter. So a transposed convolution is a convolution of stride one with s times as many filters along each axis:
    every s-th element of a filter, in reversed order, forms one of them. Missing elements are zero.
    """

    images: int
    channels: int
    out: int
    groups: int
    sizes: tuple[int, ...]
    outputs: tuple[int, ...]
    filter: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    x: str
    weight: str
    bias: str

    @property
    def spread(self) -> tuple[int, ...]:
        """Size of the filter along each axis, including the gaps of its dilation."""
        return tuple(hole * (size - 1) + 1 for size, hole in zip(self.filter, self.dilation, strict=True))

    @property
    def window(self) -> tuple[int, ...]:
        """Number of input elements that one output may read, along each axis."""
        return tuple(-(-size // step) for size, step in zip(self.spread, self.stride, strict=True))

    @property
    def places(self) -> tuple[int, ...]:
        """Number of groups of `stride` outputs, along each axis. The first and the last group may contain outputs that
        do not exist."""
        given = zip(self.padding, self.outputs, self.stride, strict=True)
        return tuple((pad + size - 1) // step - pad // step + 1 for pad, size, step in given)

    @property
    def before(self) -> tuple[int, ...]:
        """Number of zeros that must be put before the input, along each axis."""
        given = zip(self.window, self.padding, self.stride, strict=True)
        return tuple(size - 1 - pad // step for size, pad, step in given)

    @property
    def missing(self) -> tuple[int, ...]:
        """Number of positions in the first group of `stride` outputs that lie before the first real output, along each
        axis."""
        return tuple(pad % step for pad, step in zip(self.padding, self.stride, strict=True))


_TRANSPOSED_DEFAULTS = (None, None, None, 1, 0, 0, 1, 1)
"""Default values of torch's arguments: input, weight, bias, stride, padding, output padding, groups and dilation."""


def transposed_of(node: Node, graph: Graph) -> Transposed | None:
    """Return the description of a transposed convolution. None if the node is not one, or if its padding cuts off more
    than its window reaches."""
    if node.kind != "call" or node.dtype != "float32" or any(graph[s].dtype != "float32" for s in node.sources):
        return None
    packet = node.function.removeprefix("aten.").split(".")[0]
    positional, named = node.arguments
    if packet not in ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d") or named or not node.size:
        return None
    given: list[Any] = [*positional, *_TRANSPOSED_DEFAULTS[len(positional) :]]
    x, weight, bias, stride, padding, _, groups, dilation = given
    rank = int(packet[-2])
    if not isinstance(x, Ref) or not isinstance(weight, Ref) or len(graph[x.name].shape) != rank + 2:
        return None
    images, channels, *sizes = graph[x.name].shape
    found = Transposed(
        images, channels, node.shape[1], groups, tuple(sizes), node.shape[2:], graph[weight.name].shape[2:],
        each(stride, rank), each(padding, rank), each(dilation, rank),
        x.name, weight.name, bias.name if isinstance(bias, Ref) else "",
    )  # fmt: skip
    return found if min(found.before) >= 0 else None
