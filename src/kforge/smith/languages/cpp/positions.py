"""Writes C++ kernels for argmax and argmin: the index of the largest or smallest element along an axis or of the whole
tensor.

As in torch, the first NaN comes before every number. The sizes of the call are constants in the kernel's text.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.smith.ir.graph import Ref
from kforge.smith.ir.windows import around

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Graph, Node, Shape

TILE = 256
"""Number of neighbouring columns that are compared together, if the axis is not contiguous."""
PIECE = 256
"""Number of neighbouring elements of a row among which the position of the largest one is searched at a time."""


def kernel(node: Node, graph: Graph, name: str) -> str | None:
    """Return the source of a kernel `name(x, out)` for argmax or argmin, or None for other calls."""
    packet = node.function.removeprefix("aten.").partition(".")[0]
    positional, named = node.arguments if node.kind == "call" else ((), {})
    if packet not in ("argmax", "argmin") or named or not positional or not node.size:
        return None
    if not isinstance(positional[0], Ref):
        return None
    source = graph[positional[0].name]
    if source.dtype != "float32":
        return None
    return _extreme(name, packet, source.shape, positional[1] if len(positional) > 1 else None)


def _extreme(name: str, packet: str, shape: Shape, axis: int | None) -> str:
    outer, length, lanes = (1, math.prod(shape), 1) if axis is None else around(shape, axis)
    worse, start, reduction = ("<=", "-INFINITY", "max") if packet == "argmax" else (">=", "INFINITY", "min")
    chosen = "kforge::larger" if packet == "argmax" else "kforge::smaller"
    head = [
        f"// {packet} along {'everything' if axis is None else f'an axis of {length}'}",
        f'extern "C" void {name}(const float* __restrict__ x, int64_t* __restrict__ out) {{',
        "    #pragma omp parallel for" + (" collapse(2)" if lanes > 1 else ""),
    ]
    if lanes > 1:
        tile = min(TILE, lanes)
        return "\n".join([
            *head,
            f"    for (int64_t block = 0; block < {outer}; ++block) {{",
            f"        for (int64_t start = 0; start < {lanes}; start += {tile}) {{",
            f"            const int64_t count = std::min<int64_t>({tile}, {lanes} - start);",
            f"            float best[{tile}];",
            f"            int32_t place[{tile}];",
            f"            std::fill_n(best, {tile}, {start});",
            f"            std::fill_n(place, {tile}, 0);",
            f"            for (int32_t i = 0; i < {length}; ++i) {{",
            f"                const float* __restrict__ line = x + (block * {length} + i) * {lanes} + start;",
            "                #pragma omp simd",
            "                for (int64_t lane = 0; lane < count; ++lane) {",
            "                    // also true if line[lane] is the first NaN",
            f"                    const bool found = !(line[lane] {worse} best[lane]) & (best[lane] == best[lane]);",
            "                    best[lane] = found ? line[lane] : best[lane];",
            "                    place[lane] = found ? i : place[lane];",
            "                }",
            "            }",
            f"            int64_t* __restrict__ to = out + block * {lanes} + start;",
            "            for (int64_t lane = 0; lane < count; ++lane) to[lane] = place[lane];",
            "        }",
            "    }",
            "}\n",
        ])  # fmt: skip
    piece = min(PIECE, length)
    count = f"std::min<int64_t>({piece}, {length} - start)" if length % piece else str(piece)
    return "\n".join([
        *head,
        f"    for (int64_t row = 0; row < {outer}; ++row) {{",
        f"        const float* __restrict__ line = x + row * {length};",
        f"        float best = {start};",
        "        int32_t has_nan = 0;",
        f"        #pragma omp simd reduction({reduction} : best) reduction(| : has_nan)",
        f"        for (int64_t i = 0; i < {length}; ++i) {{",
        f"            best = {chosen}(line[i], best);  // skips NaN: a comparison with NaN is false",
        "            has_nan |= line[i] != line[i];",
        "        }",
        "        if (has_nan) best = NAN;  // the loop below then finds the first NaN",
        f"        for (int64_t start = 0; start < {length}; start += {piece}) {{",
        f"            const int32_t count = {count};",
        "            int32_t first = count;",
        "            #pragma omp simd reduction(min : first)",
        "            for (int32_t i = 0; i < count; ++i) {",
        "                const float value = line[start + i];",
        "                first = std::min(first, (value == best) | (value != value) ? i : count);",
        "            }",
        "            if (first < count) {",
        "                out[row] = start + first;",
        "                break;",
        "            }",
        "        }",
        "    }",
        "}\n",
    ])  # fmt: skip
