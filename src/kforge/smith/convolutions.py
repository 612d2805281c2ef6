"""Calls of torch that are convolutions, in one form: of volumes, of which a line or an image is a thin one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.smith.graph import Ref

if TYPE_CHECKING:
    from kforge.smith.graph import Graph, Node

Triple = tuple[int, int, int]

_DEFAULTS = (None, None, None, 1, 0, 1, 1)
"""Of input, weight, bias, stride, padding, dilation and groups."""


@dataclass(frozen=True)
class Convolution:
    """Without groups, and padded with zeros on both sides alike."""

    images: int
    channels: int
    sizes: Triple
    out: int
    places: int
    """Outputs of an image and a channel."""
    window: Triple
    padding: Triple
    stride: Triple
    dilation: Triple
    x: str
    weight: str
    bias: str
    """The empty name where there is none."""

    @property
    def taps(self) -> int:
        return math.prod(self.window)


def convolution_of(node: Node, graph: Graph) -> Convolution | None:
    """What a call convolves; None where it is no convolution, or one of another form."""
    if node.kind != "call" or node.dtype != "float32" or any(graph[s].dtype != "float32" for s in node.sources):
        return None
    packet = node.function.removeprefix("aten.").removesuffix(".default")
    positional, named = node.arguments
    if packet not in ("conv1d", "conv2d", "conv3d") or named:
        return None
    given: list[Any] = [*positional, *_DEFAULTS[len(positional) :]]
    x, weight, bias, stride, padding, dilation, groups = given
    if groups != 1 or not isinstance(x, Ref) or not isinstance(weight, Ref) or isinstance(padding, str):
        return None
    rank = int(packet[4])
    if len(graph[x.name].shape) != rank + 2:  # an image without a batch
        return None
    images, channels, *sizes = graph[x.name].shape
    return Convolution(
        images, channels, _triple(sizes, 1), node.shape[1], math.prod(node.shape[2:]),
        window=_triple(graph[weight.name].shape[2:], 1), padding=_triple(_each(padding, rank), 0),
        stride=_triple(_each(stride, rank), 1), dilation=_triple(_each(dilation, rank), 1),
        x=x.name, weight=weight.name, bias=bias.name if isinstance(bias, Ref) else "",
    )  # fmt: skip


def _each(value: Any, rank: int) -> list[int]:
    """One number stands for all axes."""
    given = list(value) if isinstance(value, list | tuple) else [value]
    return given * rank if len(given) == 1 else given


def _triple(values: Any, fill: int) -> Triple:
    first, second, third = (fill,) * (3 - len(values)) + tuple(values)
    return first, second, third
