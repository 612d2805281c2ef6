"""Writes pooling and depthwise convolutions for the SIMT languages. A thread computes one output, with the maps that
follow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.smith.ir.windows import POOLS, Window
from kforge.smith.languages.simt.code import Code, Value
from kforge.smith.languages.simt.dialect import GROUP_INDEX, THREAD_INDEX, Kernel
from kforge.smith.languages.simt.tails import tail_of
from kforge.smith.patterns.convolutions import convolution_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.simt.dialect import Dialect
    from kforge.smith.languages.simt.plan import SimtPlan

AXES = ("z", "y", "x")
MOST = (1 << 31) - (1 << 16)
"""Most elements that a 32-bit index can count, less a margin for the threads of the last group."""


def kernel(
    name: str, node: Node, tail: Region | None, context: Context, plan: SimtPlan, dialect: Dialect
) -> tuple[Kernel, dict[str, str]] | None:
    """Return the kernel of a pooling or a depthwise convolution with the elementwise operations that follow it
    (`tail`), and the argument for each parameter. None for other calls."""
    graph = context.graph
    form = convolution_of(node, graph)
    packet = node.function.removeprefix("aten.").partition(".")[0]
    channels = 1
    if form is not None:
        if not form.is_depthwise:
            return None
        window: Window | None = form.window
        names = {"x": form.x, "weight": form.weight, **({"bias": form.bias} if form.bias else {})}
        channels = form.channels
    elif packet in POOLS and node.size and graph[node.sources[0]].dtype == "float32":
        positional, named = node.arguments
        window = Window.pooling(packet, graph[node.sources[0]].shape, node.shape, positional[1:], named)
        names = {"x": node.sources[0]}
    else:
        return None
    after = tail_of(node, tail, context)
    if window is None or after is None or max(node.size, graph[names["x"]].size) > MOST:
        return None
    group = min(plan.group, dialect.most_threads)
    made = Kernel(name, f"{packet}: {window.title}{after.said}", group, -(-node.size // group))
    code = Code(dialect, made)
    for each in names:
        code.parameter(each, "float32")
    after.declare(code)
    code.let("i", "int32", f"{GROUP_INDEX} * {group} + {THREAD_INDEX}")
    with code.when("" if node.size % group == 0 else f"i < {node.size}"):
        result = _value(code, window.of_volume(), channels, names)
        after.finish(code, Value(result, "float32"))
    return made, {each: context.elements(node_name) for each, node_name in names.items()} | after.given


def _value(code: Code, window: Window, channels: int, names: dict[str, str]) -> str:
    """Write the loop over a window, and return the name of the variable with its result."""
    dialect, weighted = code.dialect, "weight" in names
    outputs = window.outputs
    code.let("plane", "int32", f"i / {math.prod(outputs)}")
    if weighted:
        code.let("channel", "int32", f"plane % {channels}")
    below = 1
    for axis in reversed(range(3)):
        place = "i" if below == 1 else f"i / {below}"
        place = f"{place} % {outputs[axis]}"
        code.let(f"first_{AXES[axis]}", "int32", f"{place} * {window.stride[axis]} - {window.padding[axis]}")
        below *= outputs[axis]
    start = "0.0f" if weighted or not window.is_maximum else dialect.number(-math.inf)
    result = code.var("result", "float32", start)
    counted = not weighted and not window.is_maximum and not window.counts_padding
    if counted:
        code.var("counted", "int32", "0")
    _loops(code, window, 0, counted=counted, weighted=weighted)
    if weighted and "bias" in names:
        code.assign(result, f"result + {code.load('bias', 'channel').text}")
    elif not weighted and not window.is_maximum:
        divisor = dialect.cast("float32", "counted") if counted else dialect.number(float(_divisor(window)))
        code.assign(result, f"result / {divisor}")
    return result


def _divisor(window: Window) -> int:
    return math.prod(window.kernel_size)


def _loops(code: Code, window: Window, axis: int, *, counted: bool, weighted: bool) -> None:
    """Write the loops over a window from this axis on, and inside them the statements for one element."""
    dialect = code.dialect
    if axis < len(AXES):
        name, count = AXES[axis], window.kernel_size[axis]
        with code.loop(f"tap_{name}", count, unroll=count <= 7):
            step = window.dilation[axis]
            code.let(f"at_{name}", "int32", f"first_{name} + tap_{name}{'' if step == 1 else f' * {step}'}")
            reaches = (window.outputs[axis] - 1) * window.stride[axis] - window.padding[axis] + (count - 1) * step
            bounds = [f"at_{name} >= 0"] if window.padding[axis] else []
            bounds += [f"at_{name} < {window.sizes[axis]}"] if reaches >= window.sizes[axis] else []
            with code.when(" && ".join(bounds)):
                _loops(code, window, axis + 1, counted=counted, weighted=weighted)
        return
    at = f"((plane * {window.sizes[0]} + at_z) * {window.sizes[1]} + at_y) * {window.sizes[2]} + at_x"
    value = code.load("x", at).text
    if weighted:
        taps = window.kernel_size
        tap = f"((channel * {taps[0]} + tap_z) * {taps[1]} + tap_y) * {taps[2]} + tap_x"
        code.assign("result", dialect.multiply_add(value, code.load("weight", tap).text, "result"))
    elif window.is_maximum:
        code.let("value", "float32", value)
        # NaN stays NaN, as in torch
        larger = f"(value > result || {dialect.is_nan('value')})"
        code.assign("result", dialect.select(larger, "value", "result"))
    else:
        code.assign("result", f"result + {value}")
        if counted:
            code.assign("counted", "counted + 1")
