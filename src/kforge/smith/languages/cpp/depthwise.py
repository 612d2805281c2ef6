"""Writes C++ kernels for depthwise convolutions, in which every channel has its own filter. Memory traffic, not
arithmetic, limits them.

Each plane is first copied into a zero-padded buffer (the frame) that stays in cache, so that the inner loop needs no
bounds checks. If the stride is above one, the frame's columns are sorted by their remainder modulo the stride.
Neighbouring outputs then read neighbouring elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.languages.cpp.writer import LARGE_BYTES
from kforge.smith.patterns.convolutions import convolution_of

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Graph, Node

MOST_TAPS = 128
"""Most taps of a filter for which a kernel is written. The taps are unrolled."""
LANES = 16
"""Rows of outputs are padded to a multiple of this number, so that the loop over a row is vectorized to its end."""
MOST_BYTES = 1 << 19
"""Largest size in bytes of a frame, the zero-padded copy of a plane. A larger frame does not stay in the cache."""


@dataclass(frozen=True)
class _Axis:
    """Sizes of a depthwise convolution along one axis."""

    size: int
    out: int
    taps: int
    stride: int
    padding: int
    dilation: int

    @property
    def framed(self) -> int:
        """The size including padding, rounded up to a multiple of the stride."""
        return -(-(self.size + 2 * self.padding) // self.stride) * self.stride


def kernel(node: Node, graph: Graph, name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the source of a kernel for this call, and the names of the nodes that are its inputs. None if the call is
    not a depthwise convolution, has three spatial axes, or is too large."""
    form = convolution_of(node, graph)
    if form is None or not form.is_depthwise or len(form.window.sizes) > 2:
        return None
    flat = form.window.of_volume()
    parts = (flat.sizes, flat.outputs, flat.kernel_size, flat.stride, flat.padding, flat.dilation)
    _, rows, columns = (_Axis(*each) for each in zip(*parts, strict=True))
    if rows.taps * columns.taps > MOST_TAPS or rows.framed * columns.framed * 4 > MOST_BYTES:
        return None
    text = _text(name, rows, columns, form.window.planes, form.channels, bool(form.bias))
    return text, (form.x, form.weight, *([form.bias] if form.bias else []))


def _text(name: str, rows: _Axis, columns: _Axis, planes: int, channels: int, biased: bool) -> str:
    bias = ", const float* __restrict__ bias" if biased else ""
    width, wide = columns.framed, -(-columns.out // LANES) * LANES
    large = planes * rows.out * columns.out * 4 >= LARGE_BYTES
    sums = [f"row{number}" for number in range(rows.taps)]
    lines = [
        f"// a filter of {rows.taps} x {columns.taps} for each of {channels} channels",
        f'extern "C" void {name}(',
        f"    const float* __restrict__ x, const float* __restrict__ weight{bias}, float* __restrict__ out) {{",
        *[f"    in_large_pages(out, {planes * rows.out * columns.out * 4});"] * large,
        "    #pragma omp parallel for",
        f"    for (int64_t plane = 0; plane < {planes}; ++plane) {{",
        f"        static thread_local std::vector<float> zeros({rows.framed * width + LANES});",
        "        float* __restrict__ frame = zeros.data();",
        f"        const float* __restrict__ filter = weight + plane % {channels} * {rows.taps * columns.taps};",
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
        first, start = number * columns.taps, number * rows.dilation * width
        taps = [f"filter[{first + tap}] * at[c + {start + _sorted(columns, tap)}]" for tap in range(columns.taps)]
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
    """Return the column of the frame that a row's first output multiplies by this tap."""
    place = tap * columns.dilation
    return place % columns.stride * (columns.framed // columns.stride) + place // columns.stride


def _copies(columns: _Axis) -> list[str]:
    """Return the C++ lines that copy one row into the frame, with one loop per remainder of the column modulo the
    stride."""
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
