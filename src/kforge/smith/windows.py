"""Windows that slide over planes: the arguments of torch's pooling and of its depthwise convolutions, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from kforge.smith.graph import Ref

if TYPE_CHECKING:
    from kforge.smith.graph import Graph, Node, Shape


@dataclass(frozen=True)
class Window:
    packet: str
    planes: int
    sizes: tuple[int, ...]
    outputs: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    counts_padding: bool = True

    @property
    def is_maximum(self) -> bool:
        return self.packet.startswith("max")

    @classmethod
    def pooling(cls, packet: str, shape: Shape, out: Shape, given: list[Any], named: dict[str, Any]) -> Self | None:
        """What rounds up or has a divisor of its own is left to torch."""
        rank, average = int(packet[-2]), packet.startswith("avg")
        if named or len(shape) < rank:
            return None
        names = ("window", "stride", "padding", *(("ceil", "counts", "divisor") if average else ("dilation", "ceil")))
        values = dict(zip(names, given, strict=False))
        if values.get("ceil") or values.get("divisor"):
            return None
        window = each(values["window"], rank)
        return cls(
            packet=packet,
            planes=math.prod(shape[:-rank]),
            sizes=tuple(shape[-rank:]),
            outputs=tuple(out[-rank:]),
            window=window,
            stride=each(values.get("stride") or window, rank),
            padding=each(values.get("padding", 0), rank),
            dilation=each(values.get("dilation", 1), rank),
            counts_padding=bool(values.get("counts", True)),
        )

    @classmethod
    def convolution(cls, node: Node, graph: Graph) -> tuple[Self, int] | None:
        """Of a convolution, with its number of groups."""
        packet = node.function.removeprefix("aten.").partition(".")[0]
        if node.kind != "call" or packet not in ("conv1d", "conv2d", "conv3d") or node.arguments[1]:
            return None
        given, rank = node.arguments[0], int(packet[-2])
        named = dict(zip(("stride", "padding", "dilation", "groups"), given[3:], strict=False))
        padding = named.get("padding", 0)
        source, weight = (graph[ref.name].shape for ref in given[:2] if isinstance(ref, Ref))
        if not isinstance(padding, int | list | tuple) or len(source) != rank + 2:
            return None
        window = cls(
            packet=packet,
            planes=math.prod(source[:-rank]),
            sizes=tuple(source[-rank:]),
            outputs=tuple(node.shape[-rank:]),
            window=tuple(weight[-rank:]),
            stride=each(named.get("stride", 1), rank),
            padding=each(padding, rank),
            dilation=each(named.get("dilation", 1), rank),
        )
        return window, named.get("groups", 1)

    @classmethod
    def depthwise(cls, node: Node, graph: Graph) -> Self | None:
        """Of a convolution of each channel for itself."""
        found = cls.convolution(node, graph)
        if found is None or found[1] != graph[node.sources[0]].shape[1] or found[1] != node.shape[1]:
            return None
        return found[0]


def each(value: int | list[int] | tuple[int, ...], rank: int) -> tuple[int, ...]:
    """One number an axis."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


def by(sizes: tuple[int, ...]) -> str:
    """`3 x 3`."""
    return " x ".join(map(str, sizes))


def around(shape: Shape, axis: int) -> tuple[int, int, int]:
    """How many there are before an axis, along it, and after it."""
    axis %= max(1, len(shape))
    return math.prod(shape[:axis]), (shape[axis] if shape else 1), math.prod(shape[axis + 1 :])
