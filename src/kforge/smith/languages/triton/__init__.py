"""The Triton language. Kernels are Python functions of the program, which Triton compiles at their first launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import nest
from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.attention import attention
from kforge.smith.languages.triton.convolution import products as convolutions
from kforge.smith.languages.triton.map import maps
from kforge.smith.languages.triton.plan import MOVES, TritonPlan
from kforge.smith.languages.triton.pooling import pooling
from kforge.smith.languages.triton.product import short_rows, split_rows, tiled, tiny, vectors
from kforge.smith.languages.triton.reduction import positions, reductions
from kforge.smith.languages.triton.scan import scans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context


class Triton:
    """Implements `Language` for Triton."""

    plan = TritonPlan
    moves = MOVES
    imports = ("import triton", "import triton.language as tl")
    on_host = False
    kinds = ("map", "reduce", "scan")
    most_nodes = 800
    """Most nodes of a graph for which kernels are written. An unrolled loop over 512 steps did not compile within a
    minute."""
    rules = (vectors.product_with_vector,)

    def region(self, name: str, region: Region, context: Context) -> WrittenKernel:
        plan = context.plan
        assert isinstance(plan, TritonPlan)
        kernel = nest(region, context.graph)
        given = [context.memory(buffer.base) for buffer in kernel.memories]
        if region.axes is None:
            text, launch = maps.emit(name, kernel, context.graph, plan, given)
            return WrittenKernel(name, text, (launch,), functions.used_in(text))
        emitter: scans.ScanEmitter | reductions.ReductionEmitter
        if kernel.scans:
            emitter = scans.ScanEmitter(name, kernel, context.graph, given)
        else:
            emitter = reductions.ReductionEmitter(name, kernel, context.graph, plan, given)
        size = emitter.parts_size
        between = [f"parts = {context.empty((size,), 'float32')}"] if size else []
        if isinstance(emitter, reductions.ReductionEmitter) and emitter.counters:
            between.append(f"ready = {context.empty((emitter.counters,), 'int32')}.zero_()")
        text = "\n\n".join(emitter.texts)
        return WrittenKernel(name, text, (*between, *emitter.launches), functions.used_in(text))

    def call(self, name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
        kernels = (
            tiny.kernel, short_rows.kernel, split_rows.kernel, tiled.kernel, pooling.kernel, convolutions.kernel,
            attention.kernel,
        )  # fmt: skip
        for kernel in kernels:
            if (found := kernel(name, node, tail, context)) is not None:
                return found
        return None if tail is not None else positions.kernel(name, node, context)

    def beside(self, node: Node, tail: Region | None, context: Context) -> tuple[Node, ...]:
        return pooling.beside(node, tail, context.graph)

    def library(self, kernels: Sequence[WrittenKernel]) -> str:
        helpers = functions.definitions(helper for kernel in kernels for helper in kernel.helpers)
        return "\n\n\n".join([*helpers, *(kernel.text.strip("\n") for kernel in kernels)])
