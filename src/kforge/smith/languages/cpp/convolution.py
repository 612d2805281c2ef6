"""Writes C++ kernels for convolutions for which torch's library is slow. The maps that follow are part of the kernel.

On a processor with a matrix unit, a convolution is computed as a matrix product (`convolution.h`). Transposed
convolutions, and convolutions with few channels per group, are summed directly (`direct_convolution.h`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.ir.windows import Window, by
from kforge.smith.languages.cpp.matrix import GAINS, LIBRARY, OWN, PACKING, PANEL, whole
from kforge.smith.languages.cpp.tails import TailWriter
from kforge.smith.patterns.convolutions import Transposed, convolution_of, transposed_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context, WrittenKernel
    from kforge.smith.languages.cpp.plan import CppPlan
    from kforge.smith.patterns.convolutions import Convolution

COPYING = 0.1e-9
"""Seconds to copy one number into a tile, already split into its bfloat16 parts."""
SMALL_CHANNELS = 16
"""Number of channels below which torch's own convolutions are much slower than their peak."""
MOST_CHANNELS = MappingProxyType({1: 64, 2: 16, 3: 15})
"""Most channels per group for which direct summation was measured to be faster than torch's own kernel. The key is the
number of axes of the window; the stride is one (docs/decisions/039)."""
MOST_TRANSPOSED = 64
"""Most channels per group of a transposed convolution that is summed directly."""


def kernel(name: str, node: Node, tail: Region | None, context: Context, plan: CppPlan) -> WrittenKernel | None:
    """Return a kernel for this call, or None if the call is not a convolution or torch's own kernel is expected to be
    as fast."""
    found = transposed_of(node, context.graph) or convolution_of(node, context.graph)
    if found is None:
        return None
    if _is_direct(found):
        return _DirectWriter(name, node, found, context, plan).write(tail)
    if isinstance(found, Transposed) or found.groups != 1 or _expected_gain(found) < GAINS[plan.matrix]:
        return None
    return _MatrixWriter(name, node, found, context, plan).write(tail)


def _is_direct(found: Convolution | Transposed) -> bool:
    channels = found.channels // found.groups
    if isinstance(found, Transposed):
        return channels <= MOST_TRANSPOSED
    if found.is_depthwise or set(found.window.stride) != {1}:
        return False
    return channels <= MOST_CHANNELS[len(found.window.sizes)]


def _expected_gain(convolution: Convolution) -> float:
    inner = convolution.channels * convolution.taps
    share = min(1.0, (convolution.channels / SMALL_CHANNELS) ** 2)
    library = 2 * convolution.out * inner * convolution.places / (LIBRARY * share)
    own = 2 * whole(convolution.out) * whole(inner) * whole(convolution.places) / OWN
    own += PACKING * convolution.channels * math.prod(convolution.window.sizes)
    if convolution.channels % PANEL or set(convolution.window.stride) != {1}:
        own += COPYING * inner * convolution.places
    return library / own


class _Writer(TailWriter):
    """Writes a convolution as a call of a C++ template. The two subclasses differ in the template and its sizes."""

    bias_index = "row"
    helpers: tuple[str, ...]
    template: str
    """Name of the C++ template that computes the convolution. Its arguments are the sizes and the window."""

    def __init__(self, name: str, node: Node, found: Convolution | Transposed, context: Context, plan: CppPlan) -> None:
        self.found = found
        self.window = _volume(found)
        sizes = (found.images, found.out, math.prod(self.window.outputs))
        super().__init__(name, node, sizes, found.bias, context, plan, self.helpers)

    @abstractmethod
    def sizes(self) -> tuple[int, ...]: ...

    def title(self) -> str:
        found, window = self.found, self.window
        given = (window.sizes, window.kernel_size)
        sizes, taps = (by(tuple(size for size in each if size != 1) or (1,)) for each in given)
        groups = f", in {found.groups} groups" if found.groups > 1 else ""
        transposed = ", transposed" if isinstance(found, Transposed) else ""
        origin = self.node.origin or self.name
        return f"{origin}: {taps} over {found.channels} channels of {sizes}, to {found.out}{groups}{transposed}"

    def begun(self) -> str:
        x, weight = (self.given(each, self.context.elements(each)) for each in (self.found.x, self.found.weight))
        sizes = ", ".join(map(str, self.sizes()))
        return f"{self.template}<{sizes}, {self.name}_window>::run({x}, {weight}, "

    def before(self) -> str:
        window = self.window
        axes = {
            "in": window.sizes, "out": window.outputs, "size": window.kernel_size,
            "padding": window.padding, "stride": window.stride, "dilation": window.dilation,
        }  # fmt: skip
        said = ", ".join(f"{name}[3] = {{{', '.join(map(str, each))}}}" for name, each in axes.items())
        transposed = str(isinstance(self.found, Transposed)).lower()
        lines = [f"static constexpr int64_t {said};", f"static constexpr bool transposed = {transposed};"]
        return f"struct {self.name}_window {{\n    {lines[0]}\n    {lines[1]}\n}};\n"


class _MatrixWriter(_Writer):
    """Writes a convolution as a matrix product on the processor's matrix unit."""

    helpers = ("matrix_unit", "convolution")
    template = "Convolution"

    def sizes(self) -> tuple[int, ...]:
        return (self.found.images, self.found.channels, self.found.out, *self.window.sizes)


class _DirectWriter(_Writer):
    """Writes a convolution that is summed directly, tap by tap."""

    helpers = ("direct_convolution",)
    template = "DirectConvolution"

    def sizes(self) -> tuple[int, ...]:
        return (self.found.images, self.found.channels, self.found.out, self.found.groups)


def _volume(found: Convolution | Transposed) -> Window:
    """Return the convolution's window with three axes."""
    if not isinstance(found, Transposed):
        return found.window.of_volume()
    planes, axes = found.images * found.channels, (found.filter, found.stride, found.padding, found.dilation)
    return Window("transposed", planes, found.sizes, found.outputs, *axes).of_volume()
