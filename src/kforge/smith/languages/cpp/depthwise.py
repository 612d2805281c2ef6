"""Convolutions in which every channel has a filter of its own: so little arithmetic that memory decides.

A plane is copied into a frame of zeros first, which stays in a near cache, so that no place needs to look where it is.
With a stride the columns of the frame are sorted by their remainder: then neighbours are neighbours again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.smith.graph import Ref
from kforge.smith.languages.cpp.writer import LARGE_BYTES

if TYPE_CHECKING:
    from kforge.smith.graph import Graph, Node

MOST_TAPS = 128
"""The taps of a filter are written out one by one."""
LANES = 16
"""A row of outputs is computed up to a multiple of this: what is left over would be done one by one."""
MOST_BYTES = 1 << 19
"""A frame that is larger does not stay in the cache."""


@dataclass(frozen=True)
class _Axis:
    size: int
    out: int
    window: int
    stride: int
    padding: int
    dilation: int

    @property
    def framed(self) -> int:
        """With the zeros around it, up to a multiple of the stride."""
        return -(-(self.size + 2 * self.padding) // self.stride) * self.stride


def kernel(node: Node, graph: Graph, name: str) -> tuple[str, tuple[str, ...]] | None:
    """The source of a kernel for this call, and the nodes that it is given before its output; None for other calls."""
    if node.function not in ("aten.conv1d.default", "aten.conv2d.default") or node.arguments[1] or not node.size:
        return None
    given = [*node.arguments[0], *[None, 1, 0, 1, 1][len(node.arguments[0]) - 2 :]]
    source, weight = (graph[each.name] for each in given[:2])
    channels, rank = node.shape[1], len(node.shape) - 2
    if not source.shape[1] == channels == given[6] or any(graph[each].dtype != "float32" for each in node.sources):
        return None
    stride, padding, dilation = (_each(value, rank) for value in given[3:6])
    axes = [
        _Axis(*each)
        for each in zip(source.shape[2:], node.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    ]
    rows, columns = axes if rank == 2 else [_Axis(1, 1, 1, 1, 0, 1), *axes]
    if rows.window * columns.window > MOST_TAPS or rows.framed * columns.framed * 4 > MOST_BYTES:
        return None
    biased = isinstance(given[2], Ref)
    text = _text(name, rows, columns, math.prod(node.shape[:2]), channels, biased)
    return text, (source.name, weight.name, *([given[2].name] if biased else []))


def _each(value: int | list[int], rank: int) -> list[int]:
    values: list[Any] = [value] if isinstance(value, int) else list(value)
    return values * rank if len(values) == 1 else values


def _text(name: str, rows: _Axis, columns: _Axis, planes: int, channels: int, biased: bool) -> str:
    bias = ", const float* __restrict__ bias" if biased else ""
    width, wide = columns.framed, -(-columns.out // LANES) * LANES
    large = planes * rows.out * columns.out * 4 >= LARGE_BYTES
    sums = [f"row{number}" for number in range(rows.window)]
    lines = [
        f"// a filter of {rows.window} x {columns.window} for each of {channels} channels",
        f'extern "C" void {name}(',
        f"    const float* __restrict__ x, const float* __restrict__ weight{bias}, float* __restrict__ out) {{",
        *[f"    in_large_pages(out, {planes * rows.out * columns.out * 4});"] * large,
        "    #pragma omp parallel for",
        f"    for (int64_t plane = 0; plane < {planes}; ++plane) {{",
        f"        static thread_local std::vector<float> zeros({rows.framed * width + LANES});",
        "        float* __restrict__ frame = zeros.data();",
        f"        const float* __restrict__ filter = weight + plane % {channels} * {rows.window * columns.window};",
        f"        const float first = {f'bias[plane % {channels}]' if biased else '0.0f'};",
        f"        for (int64_t row = 0; row < {rows.size}; ++row) {{",
        f"            const float* __restrict__ from = x + (plane * {rows.size} + row) * {columns.size};",
        f"            float* __restrict__ to = frame + (row + {rows.padding}) * {width};",
        *_copies(columns),
        "        }",
        f"        for (int64_t row = 0; row < {rows.out}; ++row) {{",
        f"            const float* __restrict__ at = frame + row * {rows.stride * width};",
        f"            float line[{wide}];",
        "            #pragma omp simd",
        f"            for (int64_t c = 0; c < {wide}; ++c) {{",
    ]
    for number, each in enumerate(sums):
        first, start = number * columns.window, number * rows.dilation * width
        taps = [f"filter[{first + tap}] * at[c + {start + _sorted(columns, tap)}]" for tap in range(columns.window)]
        lines.append(f"                const float {each} = {' + '.join(taps)};")
    lines += [
        f"                line[c] = first + ({' + '.join(sums)});",
        "            }",
        f"            std::copy_n(line, {columns.out}, out + (plane * {rows.out} + row) * {columns.out});",
        "        }",
        "    }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _sorted(columns: _Axis, tap: int) -> int:
    """Where a tap of the first output is read in a row of the frame."""
    place = tap * columns.dilation
    return place % columns.stride * (columns.framed // columns.stride) + place // columns.stride


def _copies(columns: _Axis) -> list[str]:
    """A row into the frame: one loop for each remainder of its columns."""
    lines = []
    for remainder in range(columns.stride):
        shift = remainder - columns.padding
        first = max(0, -(shift // columns.stride))
        end = -(-(columns.size - shift) // columns.stride)
        column = "c" if columns.stride == 1 else f"c * {columns.stride}"
        start = remainder * (columns.framed // columns.stride)
        lines += [
            "            #pragma omp simd",
            f"            for (int64_t c = {first}; c < {end}; ++c) to[{start} + c] = from[{column} + {shift}];",
        ]
    return lines
