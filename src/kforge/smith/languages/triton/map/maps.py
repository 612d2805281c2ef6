"""Writes elementwise kernels in Triton.

- flat: one index counts all elements. Neighbours in the output are neighbours in a block.
- tiled: some operand is transposed. A block has two axes, so that reads and writes stay close together in memory.

A flat kernel reads or writes two buffers together if their elements alternate in memory, such as the even and the odd
elements of a row. Reading or writing one of them alone would touch every cache line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.languages.indices import block_of, contiguous_loop, index_of, is_wide
from kforge.smith.languages.triton.statements import Statements, launch, memory_name, parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.smith.fusion.loops import Buffer, Nest
    from kforge.smith.ir.graph import Graph
    from kforge.smith.languages.indices import IndexText
    from kforge.smith.languages.triton.plan import TritonPlan

SIDE = 32
"""Number of elements of a tile along both axes. It is large enough that reads and writes use whole cache lines."""


def emit(name: str, nest: Nest, graph: Graph, plan: TritonPlan, given: list[str]) -> tuple[str, str]:
    """Return the kernel's source, and the Python statement that launches it."""
    across = contiguous_loop(nest, SIDE // 2)
    if across is not None:
        text, programs, warps = _tiled(name, nest, graph, across)
    else:
        text, programs, warps = _flat(name, nest, graph, plan)
    return text, launch(name, [programs], given, warps)


def _flat(name: str, nest: Nest, graph: Graph, plan: TritonPlan) -> tuple[str, int, int]:
    i = index_of("i", nest, range(len(nest.loops)))
    block = min(plan.block, block_of(i.size))
    body = Statements(graph, nest, (i,), {} if i.size % block == 0 else {"i": "inside"})
    body.say(f"i = {_program(0, nest)} * {block} + tl.arange(0, {block})")
    if body.masks:
        body.say(f"inside = i < {i.size}")
    pairs = list(_pairs(nest, i))
    if pairs:
        body.say(f"pair = {_program(0, nest)} * {2 * block} + tl.arange(0, {2 * block})")
    mask = f", mask=pair < {2 * i.size}" if body.masks else ""
    for even, odd in pairs:
        if even.name not in nest.outputs:
            pair = f"tl.load({_pair_at(even, nest)}{mask})"
            body.say(f"{even.name}_value, {odd.name}_value = tl.split(tl.reshape({pair}, [{block}, 2]))")
            body.values |= {each.name: f"{each.name}_value" for each in (even, odd)}
    nodes = nest.sweeps[0].elements
    body.compute(nodes)
    written = [pair for pair in pairs if pair[0].name in nest.outputs]
    for even, odd in written:
        pair = f"tl.interleave({body.values[even.name]}, {body.values[odd.name]})"
        body.say(f"tl.store({_pair_at(even, nest)}, {pair}{mask})")
    together = {each.name for pair in written for each in pair}
    body.store(node for node in nodes if node.name not in together)
    return _headed(name, nest, body), -(-i.size // block), max(1, min(8, block // 256))


def _pairs(nest: Nest, i: IndexText) -> Iterator[tuple[Buffer, Buffer]]:
    """Yield pairs of buffers, one with the even and one with the odd elements of the same memory. One load or store can
    serve both."""
    for even in nest.buffers:
        for odd in nest.buffers:
            is_one = even.base == odd.base and (even.name in nest.outputs) == (odd.name in nest.outputs)
            beside = even.steps == odd.steps and odd.offset == even.offset + 1 and even.offset % 2 == 0
            if is_one and beside and even.dtype == odd.dtype == "float32" and i.address(even.steps) == "i * 2":
                yield even, odd


def _pair_at(even: Buffer, nest: Nest) -> str:
    return f"{memory_name(even, nest)} + pair" + (f" + {even.offset}" if even.offset else "")


def _tiled(name: str, nest: Nest, graph: Graph, across: int) -> tuple[str, int, int]:
    last = len(nest.loops) - 1
    around = index_of("around", nest, [axis for axis in range(last) if axis != across])
    row, column = index_of("row", nest, [across]), index_of("column", nest, [last])
    masks = {index.name: f"(row < {row.size})" if index is row else f"(column < {column.size})"
             for index in (row, column) if index.size % SIDE}  # fmt: skip
    body = Statements(graph, nest, (around, row, column), masks)
    tiles = [-(-index.size // SIDE) for index in (row, column)]
    body.say(f"tile = {_program(0, nest)}")
    if around.loops:
        body.say(f"around = tile // {tiles[0] * tiles[1]}")
    body.say(f"row = (tile // {tiles[1]} % {tiles[0]} * {SIDE} + tl.arange(0, {SIDE}))[:, None]")
    body.say(f"column = (tile % {tiles[1]} * {SIDE} + tl.arange(0, {SIDE}))[None, :]")
    nodes = nest.sweeps[0].elements
    body.compute(nodes)
    body.store(nodes)
    return _headed(name, nest, body), around.size * tiles[0] * tiles[1], 4


def _headed(name: str, nest: Nest, body: Statements) -> str:
    head = f"# {nest.title}\n@triton.jit\ndef {name}({parameters(nest)}):\n"
    return head + "\n".join(body.lines) + "\n"


def _program(axis: int, nest: Nest) -> str:
    return f"tl.program_id({axis})" + (".to(tl.int64)" if is_wide(nest) else "")
