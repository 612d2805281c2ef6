"""Sums of sums with factors between them: one sum, and where two are better."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.smith.fusion.regions import partition
from kforge.smith.ir.graph import Builder, Graph, Ref
from kforge.smith.rewrite import simplify

RULE = "sum of weighted sums"


def started(*shape: int) -> tuple[Builder, str]:
    b = Builder()
    return b, b.input("x", 0, shape, "float32")


def weighted(b: Builder, total: str, how: str, shape: tuple[int, ...]) -> str:
    match how:
        case "times":
            return b.map("mul", b.parameter("c", "c", shape, "float32"), total)
        case "over":
            return b.map("div", total, b.map("exp", b.parameter("c", "c", shape, "float32")))
        case "of a mean":
            return b.map("mul", b.map("div", total, 3.0), b.parameter("c", "c", shape, "float32"))
        case "less":
            return b.map("neg", b.map("mul", total, b.parameter("c", "c", shape, "float32")))
    return b.map("div", total, 7.0)


def kernels(graph: Graph) -> int:
    return len(partition(graph))


@given(
    rows=st.sampled_from([(1,), (64,), (5, 13)]), sizes=st.lists(st.sampled_from([1, 2, 3]), max_size=2),
    how=st.sampled_from(["times", "over", "of a mean", "less", "number"]), data=st.data(),
)  # fmt: skip
def test_a_sum_of_weighted_sums_is_one(rows: Any, sizes: list[int], how: str, data: Any, proof: Any) -> None:
    b, x = started(*rows, *sizes, 3, 32)
    shape, axes = b.shape(x), range(len(rows), len(rows) + len(sizes) + 2)
    first = data.draw(st.sets(st.sampled_from([axis for axis in axes if shape[axis] != 1]), min_size=1))
    then = {axis for axis in axes if axis not in first}
    if all(shape[axis] == 1 for axis in then):
        return
    total = b.reduce("sum", b.map("tanh", x), first)
    # of the whole shape of what it weighs, or the same for all rows, or of a few axes of one
    own = b.shape(total)[data.draw(st.integers(0, len(rows))) :]
    if how == "over" or data.draw(st.booleans()):
        own = tuple(size if i == len(own) - 1 or data.draw(st.booleans()) else 1 for i, size in enumerate(own))
    if how == "over" and rows != (1,):  # another kernel makes it: the same for all rows
        own = own[-len(then | first) :]
    elif how == "over":
        how = "times"
    after = proof.holds(RULE, b, b.reduce("sum", weighted(b, total, how, own), then))
    (left,) = (node for node in after if node.kind == "reduce")
    assert left.axes == tuple(axis for axis in axes if shape[axis] != 1)


def test_means_of_means_are_one_sum(proof: Any) -> None:
    b, x = started(64, 5, 7, 3)
    for axis, count in ((3, 3.0), (2, 7.0), (1, 5.0)):
        x = b.map("div", b.reduce("sum", x, (axis,)), count)
    before = Graph(b.nodes, (x,))
    after, _ = simplify(before)
    assert [(node.kind, node.axes) for node in after if node.kind != "input"] == [("reduce", (1, 2, 3)), ("map", ())]
    proof.same_meaning(before, after, 0)


def small(b: Builder, axes: set[int], then: set[int], shape: tuple[int, ...], x: str = "x") -> str:
    total = b.reduce("sum", x, axes)
    return b.reduce("sum", b.map("mul", total, b.parameter("c", "c", shape, "float32")), then)


@pytest.mark.parametrize(
    ("shape", "axes", "then", "factor"),
    [
        ((64, 3, 32), {1}, {0}, (64, 1, 1)),  # rows that lie apart
        ((3, 32, 64), {0}, {1}, (1, 32, 1)),  # columns
        ((3, 64, 32), {0}, {2}, (32,)),  # both
        ((2, 40, 32), {1}, {2}, (32,)),  # two rows are not enough for many cores
        ((64, 40, 8), {1}, {2}, (8,)),  # too few neighbours for a loop of their own
        ((2, 70_000, 32), {2}, {0, 1}, (70_000, 1)),  # more factors than a near cache holds
    ],
)
def test_what_would_be_walked_through_worse_stays(
    shape: tuple[int, ...], axes: set[int], then: set[int], factor: tuple[int, ...], proof: Any
) -> None:
    b, _ = started(*shape)
    proof.stays(RULE, b, small(b, axes, then, factor))


def test_what_shares_its_pass_stays(proof: Any) -> None:
    b, x = started(64, 8, 32)
    total = small(b, {1}, {2}, (32,))
    proof.stays(RULE, b, total, b.reduce("max", x, (1,)))  # both are found in one pass
    b, x = started(64, 8, 32)
    grown = b.map("exp", b.map("sub", x, b.reduce("max", x, (1,))))
    chances = b.map("div", grown, b.reduce("sum", grown, (1,)))
    proof.stays(RULE, b, small(b, {1}, {2}, (32,), b.map("mul", chances, chances)))  # they would have to be stored
    b, x = started(64, 8, 32)
    first = b.reduce("sum", x, (1,))
    outer = b.reduce("sum", b.map("mul", first, b.parameter("c", "c", (32,), "float32")), (2,))
    proof.stays(RULE, b, outer, first)  # somebody else needs it


def test_factors_that_each_element_would_have_to_compute_stay(proof: Any) -> None:
    b, x = started(64, 8, 32)
    y = b.input("y", 1, (64, 1, 32), "float32")
    total = b.reduce("sum", x, (1,))
    proof.stays(RULE, b, b.reduce("sum", b.map("mul", total, b.map("tanh", y)), (2,)))
    b, x = started(64, 8, 32)
    total = b.reduce("sum", x, (1,))
    proof.stays(RULE, b, b.reduce("sum", b.map("mul", total, total), (2,)))
    b, x = started(64, 8, 32)
    total = b.reduce("sum", x, (1,))
    proof.stays(RULE, b, b.reduce("sum", b.map("div", b.parameter("c", "c", (32,), "float32"), total), (2,)))
    b, x = started(64, 8, 32)
    total = b.reduce("sum", x, (1,))
    proof.stays(RULE, b, b.reduce("sum", b.map("add", total, b.parameter("c", "c", (32,), "float32")), (2,)))


def test_what_lies_across_and_linear_calls_stay(proof: Any) -> None:
    b = Builder()
    x = b.permute(b.input("x", 0, (64, 32, 8), "float32"), (0, 2, 1))
    proof.stays(RULE, b, small(b, {1}, {2}, (32,), x))
    b, x = started(64, 8, 16)
    w = b.parameter("w", "w", (32, 16), "float32")
    y = b.call("linear", "aten.linear.default", ([Ref(x), Ref(w)], {}), (64, 8, 32), "float32")
    proof.stays(RULE, b, small(b, {1}, {2}, (32,), y))


@pytest.mark.parametrize("rows", [3, 64])
def test_expected_positions_are_one_kernel(rows: int, proof: Any) -> None:
    """A softmax over all pixels and the sums of its columns and rows, by their places: rows are made one by one."""
    b, x = started(rows, 32, 40)
    axis = [b.parameter(name, name, (size,), "float32") for name, size in (("u", 40), ("v", 32))]
    flat = b.reshape(x, (rows, 1280))
    grown = b.map("exp", b.map("sub", flat, b.reduce("max", flat, (1,))))
    chance = b.reshape(b.map("div", grown, b.reduce("sum", grown, (1,))), (rows, 32, 40))
    sides = [b.reshape(b.reduce("sum", chance, (1,)), (rows, 40)), b.reshape(b.reduce("sum", chance, (2,)), (rows, 32))]
    sums = [b.reduce("sum", b.map("mul", side, each), (1,)) for side, each in zip(sides, axis, strict=True)]
    before = Graph(b.nodes, (b.join("stack", [b.reshape(each, (rows,)) for each in sums], 1),))
    after, applied = simplify(before)
    assert {RULE, "softmax that is summed", "reshape after a join"} <= set(applied)
    assert (kernels(before), kernels(after)) == (5, 1)
    proof.same_meaning(before, after, 0)
