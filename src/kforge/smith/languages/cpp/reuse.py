"""Lets a kernel of maps overwrite the result of a library call instead of taking new memory, if nothing else reads that
result. The memory of the result is still in the cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Buffer, Nest
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Graph

FRESH = frozenset(
    f"aten.{name}"
    for name in (
        "linear.default", "mm.default", "bmm.default", "addmm.default", "matmul.default", "conv1d.default",
        "conv2d.default", "conv3d.default", "conv_transpose1d.default", "conv_transpose2d.input",
        "conv_transpose3d.input", "scaled_dot_product_attention.default",
    )
)  # fmt: skip
"""Calls of torch whose result is always new memory. Other calls may return a view of their input, which must not be
overwritten."""


def in_place(kernel: Nest, region: Region, graph: Graph) -> tuple[Nest, dict[str, str]]:
    """Return the nest, changed so that one output overwrites an input if that is possible, and a dictionary from that
    output to the input. The dictionary is empty if nothing could be changed."""
    if kernel.scans or any(sweep.reductions for sweep in kernel.sweeps):
        return kernel, {}
    for output in (each for each in kernel.buffers if each.name in kernel.outputs and each.base == each.name):
        for given in (each for each in kernel.buffers if each.name not in kernel.outputs):
            if _fits(given, output, kernel, graph) and _only_here(given.base, region, graph):
                buffers = tuple(replace(each, base=output.base) if each is given else each for each in kernel.buffers)
                return replace(kernel, buffers=buffers), {output.base: given.base}
    return kernel, {}


def _fits(given: Buffer, output: Buffer, kernel: Nest, graph: Graph) -> bool:
    """Return whether the output can overwrite the input: both have the same layout, so that each element is read only
    where its result is written."""
    source, made = graph[given.base], graph[output.base]
    if source.kind != "call" or source.function not in FRESH:
        return False
    alike = (given.steps, given.offset, source.size, source.dtype) == (output.steps, 0, made.size, made.dtype)
    return alike and sum(each.base == given.base for each in kernel.buffers) == 1


def _only_here(base: str, region: Region, graph: Graph) -> bool:
    """Return whether only this region reads the result of a call or a view of it."""
    readers, left = graph.readers(), [base]
    while left:
        name = left.pop()
        if name in graph.outputs:
            return False
        for reader in readers[name]:
            if reader.kind == "view":
                left.append(reader.name)
            elif reader.name not in region.names:
                return False
    return True
