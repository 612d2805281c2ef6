"""Writes convolutions as matrix products: the weights times the inputs in each window. The inputs are gathered tile by
tile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.ir.windows import by
from kforge.smith.languages.simt.code import Code, Value
from kforge.smith.languages.simt.products import Sizes, Tiled, is_left_to_torch
from kforge.smith.languages.simt.tails import tail_of
from kforge.smith.languages.simt.windows import MOST
from kforge.smith.patterns.convolutions import convolution_of, transposed_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.simt.dialect import Dialect, Kernel
    from kforge.smith.languages.simt.plan import SimtPlan


@dataclass(frozen=True)
class Shape:
    """The sizes of a convolution or a transposed convolution."""

    images: int
    channels: int
    """Number of input channels, over all groups."""
    out: int
    groups: int
    sizes: tuple[int, ...]
    outputs: tuple[int, ...]
    filter: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    names: tuple[str, str, str]
    """Names of the nodes of input, weight and bias. The bias is an empty string if there is none."""

    @property
    def taps(self) -> int:
        return math.prod(self.filter)

    @property
    def places(self) -> int:
        return math.prod(self.outputs)

    @property
    def product(self) -> Sizes:
        """Sizes of the equivalent matrix product, one per group of channels: filters times output positions."""
        inner = self.channels // self.groups * self.taps
        return Sizes(self.groups, self.out // self.groups, inner, self.images * self.places)


@dataclass(frozen=True)
class Weights:
    """Reads the weights, which are the left factor of the product."""

    shape: Shape
    by_step: bool = True

    def prepare(self, code: Code, line: str) -> None:
        pass

    def element(self, code: Code, line: str) -> Value:
        s = self.shape
        filters, inner = s.out // s.groups, s.product.inner
        if not s.transposed:
            return code.load("weight", f"(batch * {filters} + {line}) * {inner} + k")
        channel = f"batch * {s.channels // s.groups} + k / {s.taps}"
        return code.load("weight", f"(({channel}) * {filters} + {line}) * {s.taps} + k % {s.taps}")


@dataclass(frozen=True)
class Inputs:
    """Reads the input elements in each window, which are the right factor of the product."""

    shape: Shape
    by_step: bool = False

    def prepare(self, code: Code, line: str) -> None:
        s = self.shape
        code.let("image", "int32", f"{line} / {s.places}")
        code.let("channel", "int32", f"batch * {s.channels // s.groups} + k / {s.taps}")

    def element(self, code: Code, line: str) -> Value:
        s = self.shape
        below, taps, bounds, address = 1, 1, [], f"image * {s.channels} + channel"
        terms = []
        for axis in reversed(range(len(s.sizes))):
            place = f"{line if below == 1 else f'{line} / {below}'} % {s.outputs[axis]}"
            tap = f"{'k' if taps == 1 else f'k / {taps}'} % {s.filter[axis]}"
            at, step, hole, pad = f"at_{axis}", s.stride[axis], s.dilation[axis], s.padding[axis]
            if s.transposed:
                code.let(f"from_{axis}", "int32", f"{place} + {pad} - {tap} * {hole}")
                code.let(at, "int32", f"from_{axis} / {step}")
                bounds += [f"from_{axis} >= 0", f"{at} < {s.sizes[axis]}"]
                bounds += [f"from_{axis} % {step} == 0"] if step > 1 else []
            else:
                code.let(at, "int32", f"{place} * {step} + {tap} * {hole} - {pad}")
                bounds += [f"{at} >= 0", f"{at} < {s.sizes[axis]}"]
            terms.append((at, s.sizes[axis]))
            below *= s.outputs[axis]
            taps *= s.filter[axis]
        for at, size in reversed(terms):
            address = f"({address}) * {size} + {at}"
        code.var("found", "float32", "0.0f")
        with code.when(" && ".join(f"({bound})" for bound in bounds)):
            code.assign("found", code.load("x", address).text)
        return Value("found", "float32")


def kernel(
    name: str, node: Node, tail: Region | None, context: Context, plan: SimtPlan, dialect: Dialect
) -> tuple[Kernel, dict[str, str]] | None:
    """Return the kernel of a convolution with the elementwise operations that follow it (`tail`), and the argument for
    each parameter. None if the call is not a convolution or is left to torch."""
    shape, after = _shape(node, context), tail_of(node, tail, context)
    if shape is None or after is None or not node.size:
        return None
    if max(node.size, *(context.graph[each].size for each in shape.names if each)) > MOST:
        return None
    sizes = shape.product
    if not sizes.inner or is_left_to_torch(sizes, plan, dialect):
        return None
    kind = "transposed convolution" if shape.transposed else "convolution"
    said = f"{kind} of {by((shape.images, shape.channels, *shape.sizes))} by {shape.out} filters of {by(shape.filter)}"
    tile = Tiled(name, said + after.said, sizes, plan, dialect)
    given = {
        key: context.elements(each) for key, each in zip(("x", "weight", "bias"), shape.names, strict=True) if each
    }
    for each in given:
        tile.code.parameter(each, "float32")
    channel = f"batch * {sizes.rows} + row"
    place = f"(column / {shape.places} * {shape.out} + {channel}) * {shape.places} + column % {shape.places}"
    bias = (lambda: tile.code.load("bias", channel).text) if shape.names[2] else None
    tile.write(Weights(shape), Inputs(shape), after, place, bias)
    return tile.kernel, given | after.given


def _shape(node: Node, context: Context) -> Shape | None:
    if (form := convolution_of(node, context.graph)) is not None:
        w = form.window
        return Shape(
            form.images, form.channels, form.out, form.groups, w.sizes, w.outputs, w.kernel_size, w.stride, w.padding,
            w.dilation, False, (form.x, form.weight, form.bias),
        )  # fmt: skip
    if (back := transposed_of(node, context.graph)) is not None:
        return Shape(
            back.images, back.channels, back.out, back.groups, back.sizes, back.outputs, back.filter, back.stride,
            back.padding, back.dilation, True, (back.x, back.weight, back.bias),
        )  # fmt: skip
    return None
