"""Writes C++ kernels for pooling: the maximum or the mean of each window.

The sizes of the call are constants in the kernel's text. Pooling with `ceil_mode` or a given divisor is left to torch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.smith.ir.graph import Ref
from kforge.smith.ir.windows import POOLS, Window

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Graph, Node


def kernel(node: Node, graph: Graph, name: str) -> str | None:
    """Return the source of a kernel `name(x, out)` for this call, or None if the call is not a pooling that is
    supported."""
    packet = node.function.removeprefix("aten.").partition(".")[0]
    positional, named = node.arguments if node.kind == "call" else ((), {})
    if packet not in POOLS or not positional or not isinstance(positional[0], Ref) or not node.size:
        return None
    source = graph[positional[0].name]
    if source.dtype != "float32":
        return None
    window = _Window.pooling(packet, source.shape, node.shape, positional[1:], named)
    return None if window is None else window.text(name)


class _Window(Window):
    """A pooling window that can write its C++ kernel."""

    def text(self, name: str) -> str:
        lines = [
            f"// {self.packet}: {self.title}",
            f'extern "C" void {name}(const float* __restrict__ x, float* __restrict__ out) {{',
            "    #pragma omp parallel for",
            f"    for (int64_t plane = 0; plane < {self.planes}; ++plane) {{",
            f"        const float* __restrict__ in = x + plane * {math.prod(self.sizes)};",
            f"        float* __restrict__ to = out + plane * {math.prod(self.outputs)};",
        ]
        lines += self._rows(0, "        ", "to", "in", [])
        return "\n".join([*lines, "    }", "}"]) + "\n"

    def _rows(self, axis: int, indent: str, to: str, source: str, inside: list[str]) -> list[str]:
        """Return the loops over the outputs along each axis except the last."""
        if axis == len(self.sizes) - 1:
            return self._line(indent, to, inside)
        index, step = f"place{axis}", math.prod(self.outputs[axis + 1 :])
        return [
            f"{indent}for (int64_t {index} = 0; {index} < {self.outputs[axis]}; ++{index}) {{",
            *self._rows(axis + 1, indent + "    ", f"{to} + {index} * {step}", source, [*inside, index]),
            f"{indent}}}",
        ]

    def _line(self, indent: str, to: str, places: list[str]) -> list[str]:
        columns, start = self.outputs[-1], "-INFINITY" if self.is_maximum else "0.0f"
        lines = [f"{indent}float* __restrict__ line = {to};", f"{indent}std::fill_n(line, {columns}, {start});"]
        inner, source, inside = indent, "in", []
        for axis, place in enumerate(places):
            size, step = self.sizes[axis], math.prod(self.sizes[axis + 1 :])
            at, offset = f"from{axis}", f"offset{axis}"
            start_at = f"{place} * {self.stride[axis]} + {offset} * {self.dilation[axis]} - {self.padding[axis]}"
            lines += [
                f"{inner}for (int64_t {offset} = 0; {offset} < {self.kernel_size[axis]}; ++{offset}) {{",
                f"{inner}    const int64_t {at} = {start_at};",
                f"{inner}    if ({at} < 0 || {at} >= {size}) continue;",
            ]
            inner, source = inner + "    ", f"{source} + {at} * {step}"
            inside.append(self._inside(axis, place))
        lines.append(f"{inner}const float* __restrict__ source = {source};")
        for column in range(self.kernel_size[-1]):
            lines += self._column_step(inner, column)
        for _ in places:
            inner = inner[:-4]
            lines.append(f"{inner}}}")
        return lines if self.is_maximum else [*lines, *self._division(indent, inside)]

    def _column_step(self, indent: str, offset: int) -> list[str]:
        """Return the loop that combines one column of the window with every output whose window has that column inside
        the input."""
        shift, stride = offset * self.dilation[-1] - self.padding[-1], self.stride[-1]
        first = max(0, -(shift // stride)) if shift < 0 else 0
        end = min(self.outputs[-1], (self.sizes[-1] - 1 - shift) // stride + 1)
        if first >= end:
            return []
        place = "c" if stride == 1 else f"c * {stride}"
        place += f" + {shift}" if shift > 0 else f" - {-shift}" if shift < 0 else ""
        value = f"kforge::larger(line[c], source[{place}])" if self.is_maximum else f"line[c] + source[{place}]"
        return [
            f"{indent}#pragma omp simd",
            f"{indent}for (int64_t c = {first}; c < {end}; ++c) line[c] = {value};",
        ]

    def _inside(self, axis: int, place: str) -> str:
        """Return a C++ expression for the number of elements of a window, along one axis, that lie inside the input."""
        first = f"{place} * {self.stride[axis]} - {self.padding[axis]}"
        end = f"std::min<int64_t>({self.sizes[axis]}, {first} + {self.kernel_size[axis]})"
        return f"({end} - std::max<int64_t>(0, {first}))"

    def _division(self, indent: str, inside: list[str]) -> list[str]:
        columns = self.outputs[-1]
        if self.counts_padding or not any(self.padding):
            count = f"{math.prod(self.kernel_size)}.0f"
        else:
            first = f"c * {self.stride[-1]} - {self.padding[-1]}"
            last = f"{first} + {self.kernel_size[-1]}"
            across = f"(std::min<int64_t>({self.sizes[-1]}, {last}) - std::max<int64_t>(0, {first}))"
            count = f"static_cast<float>({' * '.join([*inside, across])})"
        return [f"{indent}#pragma omp simd", f"{indent}for (int64_t c = 0; c < {columns}; ++c) line[c] /= {count};"]
