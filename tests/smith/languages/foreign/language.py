"""A kernel language outside our tree: functions of torch on strided views, for maps only."""

from __future__ import annotations

from typing import Any

from kforge.smith.fusion.loops import nest
from kforge.smith.languages import WrittenKernel
from kforge.smith.plan import Plan

SPELLED = {"add": "{0} + {1}", "mul": "{0} * {1}", "exp": "({0}).exp()", "sigmoid": "({0}).sigmoid()"}


class Language:
    plan, moves, imports, on_host = Plan, (), ("import math",), True
    kinds, most_nodes, rules = ("map",), 100, ()

    def region(self, name: str, region: Any, context: Any) -> WrittenKernel:
        kernel = nest(region, context.graph)
        sizes = [loop.size for loop in kernel.loops]
        given = [context.memory(memory.base) for memory in kernel.memories]
        lines, names = [], {}
        for buffer in kernel.buffers:
            names[buffer.name] = f"beads_{buffer.name}"
            strided = f"as_strided({sizes}, {buffer.steps}, {buffer.offset})"
            lines.append(f"    beads_{buffer.name} = {buffer.base}.{strided}")
        values = {name: names[name] for name in region.inputs()}
        for node in region.nodes:
            operands = [values.get(each, each) for each in node.inputs]
            values[node.name] = f"value_{node.name}"
            lines.append(f"    value_{node.name} = {SPELLED[node.function].format(*operands)}")
        lines += [f"    {names[each]}.copy_({values[each]})" for each in kernel.outputs]
        parameters = ", ".join(memory.base for memory in kernel.memories)
        text = f"def {name}({parameters}):\n" + "\n".join(lines)
        return WrittenKernel(name, text, (f"{name}({', '.join(given)})",))

    def call(self, *_: Any) -> None:
        return None

    def beside(self, *_: Any) -> tuple[Any, ...]:
        return ()

    def library(self, kernels: Any) -> str:
        return "\n\n".join(kernel.text for kernel in kernels)
