"""The C++ language, for host processors. All kernels of a program are functions of one shared library, which
`kforge.inline` compiles when the program is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import nest
from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.cpp import (
    convolution,
    definitions,
    depthwise,
    matrix,
    nests,
    pooling,
    positions,
    scans,
    writer,
)
from kforge.smith.languages.cpp.plan import MOVES, CppPlan
from kforge.smith.languages.cpp.reuse import in_place
from kforge.smith.rewrite import inverses, weights
from kforge.smith.rewrite.operators import exponentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context

HEADERS = {
    "immintrin.h": "_mm512_", "omp.h": "omp_get_", "sys/mman.h": "madvise(", "sys/syscall.h": "syscall(",
    "unistd.h": "syscall(", "algorithm": "std::", "cmath": "", "cstdint": "", "cstdio": "std::fputs",
    "cstdlib": "std::free", "cstring": "std::memcpy", "vector": "std::vector",
}  # fmt: skip
"""Headers that a program may include. Each has a text: the header is included if the text occurs in the source."""


class Cpp:
    """Implements `Language` for C++."""

    plan = CppPlan
    moves = MOVES
    imports = ("from kforge import inline",)
    on_host = True
    kinds = ("map", "reduce", "scan")
    most_nodes = 20_000
    rules = (exponentials.in_two_parts, inverses.inverse_for_many, weights.bias_into_kernels)

    def region(self, name: str, region: Region, context: Context) -> WrittenKernel:
        plan = context.plan
        assert isinstance(plan, CppPlan)
        kernel, reuses = in_place(nest(region, context.graph, keep_above=plan.keep), region, context.graph)
        arguments = ", ".join(context.memory(buffer.base) for buffer in kernel.memories)
        text = (scans if kernel.scans else nests).emit(name, kernel, context.graph, plan)
        helpers = (*writer.helpers_of(kernel, context.graph), *scans.helpers_of(kernel, plan))
        return WrittenKernel(name, text, (f"library.{name}({arguments})",), helpers, reuses)

    def call(self, name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
        plan = context.plan
        assert isinstance(plan, CppPlan)
        for write in (matrix.kernel, convolution.kernel):
            if (written := write(name, node, tail, context, plan)) is not None:
                return written
        if tail is not None:
            return None
        if (filtered := depthwise.kernel(node, context.graph, name)) is not None:
            given = ", ".join(context.elements(each) for each in filtered[1])
            return WrittenKernel(name, filtered[0], (f"library.{name}({given}, {node.name})",), ("large_pages",))
        text = pooling.kernel(node, context.graph, name) or positions.kernel(node, context.graph, name)
        if text is None:
            return None
        helpers = tuple(each for each in ("larger", "smaller") if f"{each}(" in text)
        return WrittenKernel(
            name, text, (f"library.{name}({context.elements(node.sources[0])}, {node.name})",), helpers
        )

    def beside(self, node: Node, tail: Region | None, context: Context) -> tuple[Node, ...]:  # noqa: ARG002 - protocol
        return ()

    def library(self, kernels: Sequence[WrittenKernel]) -> str:
        texts = "\n".join(kernel.text for kernel in kernels)
        helpers = [helper for kernel in kernels for helper in kernel.helpers]
        needed = definitions.texts(helpers) + scans.texts(helpers)
        headers = (f"#include <{header}>" for header, mark in HEADERS.items() if mark in needed + texts)
        source = "\n".join([*headers, needed, texts])
        return f'library = inline.compile(r"""\n{source.strip()}\n""")'
