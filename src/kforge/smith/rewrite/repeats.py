"""Moves operations before a repetition of rows, if they treat all copies of a row alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kforge.smith.ir.graph import Ref
from kforge.smith.rewrite.linear import linear_of
from kforge.smith.rewrite.rule import Site, constant_along, node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Operand

REPEAT = "aten.repeat_interleave.self_int"


class _Repeat(NamedTuple):
    """A repetition: each row of `x` along `axis` occurs `times` times in a row."""

    name: str
    x: str
    times: int
    axis: int


def _repeat(site: Site, operand: Operand) -> _Repeat | None:
    """Return the description of a repetition along one axis. None if the operand is not one, or if something else reads
    it."""
    node = site.graph[operand] if isinstance(operand, str) else None
    if node is None or node.function != REPEAT or not site.alone(node.name):
        return None
    match node.arguments:
        case [Ref(x), int(times), int(axis)], named if not named:
            return _Repeat(node.name, x, times, axis % len(node.shape))
    return None


def _again(site: Site, value: str, repeat: _Repeat) -> str:
    arguments: Any = ([Ref(value), repeat.times, repeat.axis], {})
    return site.builder.call("repeat_interleave", REPEAT, arguments, site.node.shape, site.node.dtype)


@node_rule(
    "repeat after a layer",
    when="a linear layer or matmul gets rows that repeat_interleave has repeated",
    saves="computing the copies of each row",
    algebraic=True,
)
def repeat_after_layer(site: Site) -> Operand | None:
    linear = linear_of(site.graph, site.node)
    repeat = _repeat(site, linear.x) if linear is not None else None
    if linear is None or repeat is None or repeat.axis not in linear.free:
        return None
    b, bias = site.builder, linear.bias_in_place(site.builder)
    if bias is not None and not constant_along((repeat.axis,), b.shape(bias), site.node.shape):
        return None
    value = linear.again(b, repeat.x, linear.weight)
    return _again(site, value if bias is None else b.map("add", value, bias), repeat)


@node_rule(
    "repeat after maps",
    when="a map reads rows that repeat_interleave has repeated, and no operand that differs between the copies",
    saves="computing the copies of each row",
)
def repeat_after_maps(site: Site) -> Operand | None:
    node = site.node
    repeats = [each for each in (_repeat(site, source) for source in node.sources) if each is not None]
    if node.kind != "map" or len(repeats) != 1 or site.graph[repeats[0].name].shape != node.shape:
        return None
    (repeat,), b = repeats, site.builder
    others = [each for each in node.inputs if each != repeat.name]
    if not all(constant_along((repeat.axis,), b.shape(each), node.shape) for each in others):
        return None
    inputs = (repeat.x if each == repeat.name else each for each in node.inputs)
    return _again(site, b.map(node.function, *inputs, dtype=node.dtype), repeat)


REPEATS = (repeat_after_layer, repeat_after_maps)
