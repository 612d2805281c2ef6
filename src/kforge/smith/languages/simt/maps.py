"""Writes elementwise kernels for the SIMT languages.

- flat: a thread computes four neighbouring outputs, and reads and writes contiguous operands as vectors of four. If
  vectors cannot be used, it computes one output.
- tiled: some operand is transposed. A thread group computes a square tile, so that reads and writes stay close together
  in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.languages.indices import IndexText, contiguous_loop, index_of, is_wide
from kforge.smith.languages.simt.code import Code, Value
from kforge.smith.languages.simt.dialect import GROUP_INDEX, THREAD_INDEX, Kernel
from kforge.smith.languages.simt.elements import Elements, Memories

if TYPE_CHECKING:
    from kforge.smith.fusion.loops import Buffer, Nest
    from kforge.smith.ir.graph import Graph
    from kforge.smith.languages.simt.dialect import Dialect
    from kforge.smith.languages.simt.plan import SimtPlan

SIDE, ROWS = 32, 8
"""Side of a square tile, in elements, and the number of its rows that a thread group processes at a time."""
FOUR = 4
PARTS = ("x", "y", "z", "w")


def emit(name: str, nest: Nest, graph: Graph, plan: SimtPlan, dialect: Dialect) -> tuple[Kernel, Memories]:
    """Return the elementwise kernel of a nest, and the tensors that are its parameters."""
    memories = Memories(nest, graph)
    across = contiguous_loop(nest, SIDE // 2)
    write = _tiled if across is not None else _flat
    return write(name, memories, plan, dialect), memories


def _flat(name: str, memories: Memories, plan: SimtPlan, dialect: Dialect) -> Kernel:
    nest = memories.nest
    i = index_of("i", nest, range(len(nest.loops)), "/")
    last = nest.loops[-1].size if nest.loops else 1
    wide = plan.vector and dialect.has_vectors and last % FOUR == 0 and any(_is_vector(b) for b in nest.buffers)
    each = FOUR if wide else 1
    threads = i.size // each
    group = min(plan.group, dialect.most_threads)
    kernel = Kernel(name, nest.title, group, -(-threads // group))
    code = Code(dialect, kernel)
    memories.declare(code)
    kind = "int64" if is_wide(nest) and dialect.has_int64 else "int32"
    number = f"{dialect.cast(kind, GROUP_INDEX) if kind == 'int64' else GROUP_INDEX} * {group} + {THREAD_INDEX}"
    code.let("i", kind, number if each == 1 else f"({number}) * {FOUR}")
    with code.when("" if threads % group == 0 else f"i < {i.size}"):
        if wide:
            _four(code, memories, i)
        else:
            body = Elements(code, memories, (i,))
            nodes = nest.sweeps[0].elements
            body.compute(nodes)
            body.store(nodes)
    return kernel


def _four(code: Code, memories: Memories, i: IndexText) -> None:
    """Write the statements that compute four neighbouring outputs."""
    nest, dialect = memories.nest, code.dialect
    places = [Elements(code, memories, (i,), f"_{part}") for part in PARTS]
    nodes = nest.sweeps[0].elements
    for buffer in nest.buffers:
        if buffer.name in nest.outputs:
            continue
        memory = code.memory(memories.name(buffer.base))
        address = places[0].address(buffer)
        if _is_vector(buffer):
            vector = code.name(f"{buffer.name}_four")
            code.kernel.aligned.add(memories.name(buffer.base))
            code.say(f"const float4 {vector} = {dialect.vector(memory, f'({address})', constant=True)};")
            for part, place in zip(PARTS, places, strict=True):
                place.values[buffer.name] = Value(f"{vector}.{part}", "float32")
        else:
            step = buffer.steps[-1]
            shared = places[0].read(buffer.name) if not step else None
            for number, place in enumerate(places):
                place.values[buffer.name] = shared or _beside(code, memories, buffer, f"{address} + {number * step}")
    for place in places:
        place.compute(nodes)
    for node in nodes:
        if node.name not in nest.outputs:
            continue
        buffer = nest.buffer(node.name)
        address, name = places[0].address(buffer), memories.name(buffer.base)
        values = [place.values[node.name] for place in places]
        if _is_vector(buffer):
            texts = [code.converted(value, "float32") for value in values]
            code.say(dialect.store_vector(code.memory(name), f"({address})", texts))
        else:
            for number, value in enumerate(values):
                code.store(name, f"{address} + {number * buffer.steps[-1]}", value)


def _beside(code: Code, memories: Memories, buffer: Buffer, address: str) -> Value:
    value = code.load(memories.name(buffer.base), address)
    return Value(code.let(code.name(f"{buffer.name}_value"), value.kind, value.text), value.kind)


def _is_vector(buffer: Buffer) -> bool:
    """Return whether four neighbouring elements of the buffer can be read or written as one aligned vector."""
    aligned = not any(step % FOUR for step in buffer.steps[:-1]) and buffer.offset % FOUR == 0
    return buffer.dtype == "float32" and bool(buffer.steps) and buffer.steps[-1] == 1 and aligned


def _tiled(name: str, memories: Memories, plan: SimtPlan, dialect: Dialect) -> Kernel:  # noqa: ARG001 - as `_flat`
    nest = memories.nest
    across, last = contiguous_loop(nest, SIDE // 2), len(nest.loops) - 1
    assert across is not None
    around = index_of("around", nest, [axis for axis in range(last) if axis != across], "/")
    row, column = index_of("row", nest, [across], "/"), index_of("column", nest, [last], "/")
    tiles = [-(-index.size // SIDE) for index in (row, column)]
    kernel = Kernel(name, nest.title, SIDE * ROWS, around.size * tiles[0] * tiles[1])
    code = Code(dialect, kernel)
    memories.declare(code)
    kind = "int64" if is_wide(nest) and dialect.has_int64 else "int32"
    if around.loops:
        code.let("around", kind, f"{GROUP_INDEX} / {tiles[0] * tiles[1]}")
    first = f"{GROUP_INDEX} / {tiles[1]} % {tiles[0]} * {SIDE} + {THREAD_INDEX} / {SIDE}"
    code.let("first", kind, first)
    code.let("column", kind, f"{GROUP_INDEX} % {tiles[1]} * {SIDE} + {THREAD_INDEX} % {SIDE}")
    with code.loop("down", SIDE, "0", ROWS, unroll=True):
        code.let("row", kind, "first + down")
        masks = [f"{index.name} < {index.size}" for index in (row, column) if index.size % SIDE]
        with code.when(" && ".join(masks)):
            body = Elements(code, memories, (around, row, column))
            nodes = nest.sweeps[0].elements
            body.compute(nodes)
            body.store(nodes)
    return kernel
