"""The SIMT languages (CUDA, HIP, OpenCL C, SYCL, Metal, WGSL). Schedules are shared; a dialect gives the syntax of each
language. Kernels are compiled and launched by `kforge.inline`."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import nest
from kforge.smith.languages import WrittenKernel
from kforge.smith.languages.simt import attention, convolutions, dialects, maps, positions, products, windows
from kforge.smith.languages.simt.elements import ALIGNED, ALIGNED_TEXT, launched
from kforge.smith.languages.simt.functions import INCLUDE
from kforge.smith.languages.simt.plan import MOVES, SimtPlan
from kforge.smith.languages.simt.reductions import PARTIAL, Reductions
from kforge.smith.languages.simt.scans import TOTALS, Scans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.simt.dialect import Dialect, Kernel


def names() -> list[str]:
    """Return the names of all dialects that ship with kforge."""
    return [module.name for module in pkgutil.iter_modules(dialects.__path__)]


def dialect_of(name: str) -> Dialect:
    """Return the dialect of this name."""
    found: Dialect = importlib.import_module(f"{dialects.__name__}.{name}").DIALECT
    return found


class Simt:
    """Implements `Language` for one SIMT dialect."""

    plan = SimtPlan
    moves = MOVES
    imports = ("from kforge import inline",)
    on_host = False
    kinds = ("map", "reduce", "scan")
    most_nodes = 2000
    rules = ()

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def region(self, name: str, region: Region, context: Context) -> WrittenKernel:
        plan = context.plan
        assert isinstance(plan, SimtPlan)
        loops = nest(region, context.graph, keep_above=1 << 30)
        if region.axes is None:
            kernel, memories = maps.emit(name, loops, context.graph, plan, self.dialect)
            return self._written([kernel], memories.given(context))
        write, partial = (Scans, TOTALS) if loops.scans else (Reductions, PARTIAL)
        written = write(name, loops, context.graph, plan, self.dialect)
        size = written.parts_size
        between = [f"{partial} = {context.empty((size,), 'float32')}"] if size else []
        given = {**written.memories.given(context), partial: partial}
        return self._written(written.kernels, given, between)

    def _written(
        self, kernels: Sequence[Kernel], given: Mapping[str, str], before: Sequence[str] = ()
    ) -> WrittenKernel:
        steps = [step for kernel in kernels for step in launched(self.dialect, kernel, given)]
        text = "\n".join(self.dialect.kernel(kernel) for kernel in kernels)
        helpers = [helper for kernel in kernels for helper in kernel.helpers]
        aligned = [ALIGNED] if any(f"{ALIGNED}(" in step for step in steps) else []
        return WrittenKernel(kernels[-1].name, text, (*before, *steps), (*helpers, *aligned))

    def call(self, name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
        plan = context.plan
        assert isinstance(plan, SimtPlan)
        for family in (windows, convolutions, products, attention):
            if (found := family.kernel(name, node, tail, context, plan, self.dialect)) is not None:
                return self._written([found[0]], found[1])
        found = None if tail is not None else positions.kernel(name, node, context, plan, self.dialect)
        return None if found is None else self._written([found[0]], found[1])

    def beside(self, node: Node, tail: Region | None, context: Context) -> tuple[Node, ...]:  # noqa: ARG002 - protocol
        return ()

    def library(self, kernels: Sequence[WrittenKernel]) -> str:
        helpers = [helper for kernel in kernels for helper in kernel.helpers]
        header = INCLUDE if INCLUDE in helpers else ""
        texts = [self.dialect.prelude, header, *(kernel.text for kernel in kernels)]
        source = self.dialect.library("\n".join(text for text in texts if text))
        return f"{source}\n\n{ALIGNED_TEXT}" if ALIGNED in helpers else source
