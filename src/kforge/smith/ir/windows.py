"""Describes the sliding windows of pooling and convolutions as data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Shape

POOLS = frozenset({"max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"})
"""Names of torch's pooling operators."""


@dataclass(frozen=True)
class Window:
    """The window of a pooling or convolution: its size (`kernel_size`, as in torch), stride, padding and dilation, each
    with one number per axis.

    `packet` is torch's name of the operator, and `planes` the number of images times channels. `sizes` and `outputs`
    are the sizes of the input and of the output. `counts_padding` says whether an average counts the padding.
    """

    packet: str
    planes: int
    sizes: tuple[int, ...]
    outputs: tuple[int, ...]
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    counts_padding: bool = True

    @property
    def is_maximum(self) -> bool:
        return self.packet.startswith("max")

    @property
    def title(self) -> str:
        """The window's part of the comment above a kernel."""
        sizes, stride, padding = map(by, (self.kernel_size, self.stride, self.padding))
        return f"windows of {sizes}, stride {stride}, padding {padding}"

    @classmethod
    def pooling(cls, packet: str, shape: Shape, out: Shape, given: list[Any], named: dict[str, Any]) -> Self | None:
        """Return the window of a pooling call, or None if kernels do not support it.

        Not supported are output sizes that are rounded up (`ceil_mode`) and a divisor given by the caller.
        """
        rank, average = int(packet[-2]), packet.startswith("avg")
        if named or len(shape) < rank:
            return None
        further = ("ceil", "counts", "divisor") if average else ("dilation", "ceil")
        names = ("kernel_size", "stride", "padding", *further)
        values = dict(zip(names, given, strict=False))
        if values.get("ceil") or values.get("divisor"):
            return None
        kernel_size = each(values["kernel_size"], rank)
        return cls(
            packet=packet,
            planes=math.prod(shape[:-rank]),
            sizes=tuple(shape[-rank:]),
            outputs=tuple(out[-rank:]),
            kernel_size=kernel_size,
            stride=each(values.get("stride") or kernel_size, rank),
            padding=each(values.get("padding", 0), rank),
            dilation=each(values.get("dilation", 1), rank),
            counts_padding=bool(values.get("counts", True)),
        )

    def of_volume(self) -> Self:
        """Return the same window with three axes. Missing axes are put in front, with size one."""
        missing = 3 - len(self.sizes)
        ones, zeros = (1,) * missing, (0,) * missing
        return replace(
            self,
            sizes=ones + self.sizes,
            outputs=ones + self.outputs,
            kernel_size=ones + self.kernel_size,
            stride=ones + self.stride,
            padding=zeros + self.padding,
            dilation=ones + self.dilation,
        )


def each(value: int | list[int] | tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return one number per axis: a single number is repeated."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


def by(sizes: tuple[int, ...]) -> str:
    """Format sizes as text: `3 x 3`."""
    return " x ".join(map(str, sizes))


def around(shape: Shape, axis: int) -> tuple[int, int, int]:
    """Return three numbers: the product of the sizes before an axis, the size of the axis, and the product of the sizes
    after it."""
    axis %= max(1, len(shape))
    return math.prod(shape[:axis]), (shape[axis] if shape else 1), math.prod(shape[axis + 1 :])
