"""Sums that come before what is linear, and those that must not."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder, Graph, Ref
from kforge.smith.rewrite import ALGEBRAIC, simplify

SIZES = st.integers(2, 5)


def call(b: Builder, function: str, shape: tuple[int, ...], *arguments: Any) -> str:
    given_ = [Ref(each) if isinstance(each, str) else each for each in arguments]
    return b.call(function.split(".")[1], function, (given_, {}), shape, "float32")


def layer(rows: tuple[int, ...], inner: int, features: int, bias: bool = False) -> tuple[Builder, str]:
    b = Builder()
    x, w = b.input("x", 0, (*rows, inner), "float32"), b.parameter("w", "w", (features, inner), "float32")
    more = [b.parameter("b", "b", (features,), "float32")] if bias else []
    return b, call(b, "aten.linear.default", (*rows, features), x, w, *more)


def convolution(places: tuple[int, ...], kernel: int = 1, stride: int = 1, padding: int = 0) -> tuple[Builder, str]:
    b, rank = Builder(), len(places)
    x = b.input("x", 0, (3, 4, *places), "float32")
    w = b.parameter("w", "w", (5, 4, *([kernel] * rank)), "float32")
    bias = b.parameter("b", "b", (5,), "float32")
    out = tuple((size + 2 * padding - kernel) // stride + 1 for size in places)
    tail = [[stride] * rank, [padding] * rank]
    return b, call(b, f"aten.conv{rank}d.default", (3, 5, *out), x, w, bias, *tail)


def calls(graph: Graph) -> list[str]:
    return [node.function for node in graph if node.kind == "call"]


def multiplications(graph: Graph) -> int:
    return sum(math.prod(node.shape) for node in graph if node.kind == "call")


@given(
    rows=st.lists(SIZES, min_size=1, max_size=3).map(tuple), inner=SIZES, features=SIZES, bias=st.booleans(),
    data=st.data(),
)  # fmt: skip
def test_the_sum_of_features_is_one_product(
    rows: Any, inner: int, features: int, bias: bool, data: Any, proof: Any
) -> None:
    b, y = layer(rows, inner, features, bias)
    others = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    after = proof.holds("sum of features", b, b.reduce("sum", y, {*others, len(rows)}))
    assert calls(after) == []


@given(
    batch=st.lists(SIZES, max_size=2).map(tuple), m=SIZES, k=SIZES, n=SIZES, shared=st.integers(0, 2), data=st.data()
)
def test_sums_of_products_of_matrices(batch: Any, m: int, k: int, n: int, shared: int, data: Any, proof: Any) -> None:
    b = Builder()
    x, y = b.input("x", 0, (*batch, m, k), "float32"), b.input("y", 1, (*batch[shared:], k, n), "float32")
    product = call(b, "aten.matmul.default", (*batch, m, n), x, y)
    axes = data.draw(st.sets(st.integers(0, len(batch) + 1), min_size=1))
    before = b.reduce("sum", product, axes)
    last = len(batch) + 1
    if last in axes:
        assert calls(proof.holds("sum of features", b, before)) == []
    elif last - 1 in axes:
        proof.holds("sum of rows", b, before)
        proof.stays("sum of features", b, before)
    elif shared < len(batch) and max(axes) >= shared:
        proof.same_meaning(Graph(b.nodes, (before,)), simplify(Graph(b.nodes, (before,)))[0], 0)


def test_a_batch_that_both_have_cannot_be_summed_first(proof: Any) -> None:
    b = Builder()
    x, y = b.input("x", 0, (4, 2, 3), "float32"), b.input("y", 1, (4, 3, 5), "float32")
    total = b.reduce("sum", call(b, "aten.bmm.default", (4, 2, 5), x, y), (0,))
    proof.stays("sum of rows", b, total)
    proof.stays("sum of features", b, total)


@given(
    rows=st.lists(SIZES, min_size=1, max_size=3).map(tuple), inner=SIZES, features=SIZES, bias=st.booleans(),
    data=st.data(),
)  # fmt: skip
def test_rows_are_summed_first(rows: Any, inner: int, features: int, bias: bool, data: Any, proof: Any) -> None:
    b, y = layer(rows, inner, features, bias)
    axes = data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1))
    before = Graph(b.nodes, (b.reduce("sum", y, axes),))
    after = proof.holds("sum of rows", b, before.outputs[0])
    assert multiplications(after) < multiplications(before)


@pytest.mark.parametrize("shape", [(6,), (1, 6)])
def test_addmm(shape: tuple[int, ...], proof: Any) -> None:
    for axes in ((0,), (1,), (0, 1)):
        b = Builder()
        x, w = b.input("x", 0, (4, 3), "float32"), b.parameter("w", "w", (3, 6), "float32")
        y = call(b, "aten.addmm.default", (4, 6), b.parameter("b", "b", shape, "float32"), x, w)
        proof.holds("sum of features" if 1 in axes else "sum of rows", b, b.reduce("sum", y, axes))


@given(rank=st.integers(1, 3), data=st.data())
def test_places_of_a_1x1_convolution_are_summed_first(rank: int, data: Any, proof: Any) -> None:
    b, y = convolution((5, 4, 3)[:rank])
    axes = data.draw(st.sets(st.sampled_from([0, *range(2, rank + 2)]), min_size=1))
    proof.holds("sum of rows", b, b.reduce("sum", y, axes))
    b, y = convolution((5, 4, 3)[:rank])
    proof.holds("sum of features", b, b.reduce("sum", y, {1, *axes}))


@pytest.mark.parametrize(
    "options", [{"kernel": 3}, {"kernel": 3, "padding": 1}, {"stride": 2}, {"padding": 1}, {"kernel": 2, "stride": 2}]
)
def test_places_of_other_convolutions_are_not_but_images_and_channels_are(options: Any, proof: Any) -> None:
    b, y = convolution((6, 5), **options)
    proof.stays("sum of rows", b, b.reduce("sum", y, (2, 3)))
    b, y = convolution((6, 5), **options)
    proof.holds("sum of rows", b, b.reduce("sum", y, (0, 2, 3)))
    b, y = convolution((6, 5), **options)
    proof.holds("sum of features", b, b.reduce("sum", y, (1,)))


def test_transposed_convolutions(proof: Any) -> None:
    for axes, rule in (((1,), "sum of features"), ((0,), "sum of rows"), ((0, 1, 3), "sum of features")):
        b = Builder()
        x, w = b.input("x", 0, (3, 4, 5, 6), "float32"), b.parameter("w", "w", (4, 7, 3, 3), "float32")
        bias = b.parameter("b", "b", (7,), "float32")
        y = call(b, "aten.conv_transpose2d.input", (3, 7, 10, 12), x, w, bias, [2, 2], [1, 1], [1, 1])
        proof.holds(rule, b, b.reduce("sum", y, axes))


def test_groups_and_other_reductions_stay(proof: Any) -> None:
    b = Builder()
    x, w = b.input("x", 0, (2, 4, 5), "float32"), b.parameter("w", "w", (4, 2, 1), "float32")
    y = call(b, "aten.conv1d.default", (2, 4, 5), x, w, None, [1], [0], [1], 2)
    proof.stays("sum of rows", b, b.reduce("sum", y, (2,)))
    proof.stays("sum of features", b, b.reduce("sum", y, (1,)))
    b, y = layer((4,), 3, 5)
    proof.stays("sum of features", b, b.reduce("max", y, (1,)))


def test_a_layer_that_is_needed_itself_stays(proof: Any) -> None:
    for other in (True, False):
        b, y = layer((4,), 3, 5)
        total = b.reduce("sum", y, (1,))
        outputs = (total, y) if other else (b.map("mul", total, y),)
        proof.stays("sum of features", b, *outputs)
        proof.stays("sum of rows", b, *outputs)


def test_one_row_has_nothing_to_save(proof: Any) -> None:
    b, y = layer((1,), 3, 5)
    proof.stays("sum of features", b, b.reduce("sum", y, (1,)))
    proof.stays("sum of rows", b, b.reduce("sum", y, (0,)))


TAILS = {
    "scaled": lambda b, y: b.map("div", b.map("mul", y, 2.0), 3.0),
    "shifted": lambda b, y: b.map("sub", 1.0, y),
    "negated": lambda b, y: b.map("neg", y),
    "plus a row": lambda b, y: b.map("add", y, b.parameter("p", "p", (5,), "float32")),
    "plus a column": lambda b, y: b.map("sub", b.parameter("p", "p", (3, 1), "float32"), y),
    "plus another": lambda b, y: b.map("add", y, b.input("z", 1, (4, 3, 5), "float32")),
    "times a constant": lambda b, y: b.map("mul", b.parameter("p", "p", (), "float32"), y),
    "times columns": lambda b, y: b.map("mul", y, b.parameter("p", "p", (4, 3, 1), "float32")),
    "permuted": lambda b, y: b.permute(y, (0, 2, 1)),
    "merged": lambda b, y: b.reshape(y, (12, 5)),
    "wider": lambda b, y: b.map("add", b.reshape(y, (4, 1, 3, 5)), b.input("z", 1, (2, 3, 1), "float32")),
}  # fmt: skip


@pytest.mark.parametrize("tail", TAILS)
def test_a_sum_comes_through_what_is_linear(tail: str, proof: Any) -> None:
    b, y = layer((4, 3), 6, 5, bias=True)
    end = TAILS[tail](b, y)
    axes = (1,) if tail == "permuted" else (len(b.shape(end)) - 1,)
    before = Graph(b.nodes, (b.reduce("sum", end, axes),))
    after, applied = simplify(before)
    assert "sum of features" in applied
    assert ALGEBRAIC & set(applied)
    assert calls(after) == []
    proof.same_meaning(before, after, 1)


def test_each_of_these_alone(proof: Any) -> None:
    for tail in TAILS:
        b, y = layer((4, 3), 6, 5, bias=True)
        end = TAILS[tail](b, y)
        views = tail in ("permuted", "merged")
        axes = (0,) if tail == "merged" else (1,) if tail == "permuted" else (len(b.shape(end)) - 1,)
        proof.holds("sum of a view" if views else "sum of a sum or multiple", b, b.reduce("sum", end, axes))


def test_a_sum_does_not_come_through_what_is_not(proof: Any) -> None:
    rule = "sum of a sum or multiple"
    b, y = layer((4, 3), 6, 5)
    proof.stays(rule, b, b.reduce("sum", b.map("tanh", y), (2,)))
    b, y = layer((4, 3), 6, 5)
    proof.stays(rule, b, b.reduce("sum", b.map("mul", y, b.parameter("p", "p", (5,), "float32")), (2,)))
    b, y = layer((4, 3), 6, 5)
    proof.stays(rule, b, b.reduce("sum", b.map("div", b.parameter("p", "p", (4, 3, 1), "float32"), y), (2,)))
    b, y = layer((4, 3), 6, 5)
    proof.stays(rule, b, b.reduce("sum", b.map("mul", y, y), (2,)))
    b = Builder()  # no linear call: it would only be rounded otherwise
    proof.stays(rule, b, b.reduce("sum", b.map("sub", b.input("x", 0, (4, 3), "float32"), 2.0), (1,)))


def test_part_of_a_merged_axis_cannot_be_summed_first(proof: Any) -> None:
    b, y = layer((4, 3), 6, 6)
    proof.stays("sum of a view", b, b.reduce("sum", b.reshape(y, (4, 9, 2)), (2,)))
    b, y = layer((4, 3), 6, 6)
    proof.holds("sum of a view", b, b.reduce("sum", b.reshape(y, (4, 3, 2, 3)), (2, 3)))


@given(rows=st.integers(2, 5), inner=SIZES, groups=SIZES, each=SIZES, bias=st.booleans(), inside=st.booleans())
def test_groups_of_features_are_summed_first(
    rows: int, inner: int, groups: int, each: int, bias: bool, inside: bool, proof: Any
) -> None:
    b, y = layer((2, rows), inner, groups * each, bias)
    shape, axis = ((2, rows, groups, each), 3) if inside else ((2, rows, each, groups), 2)
    after = proof.holds("sum of groups of features", b, b.reduce("sum", b.reshape(y, shape), [axis]))
    assert multiplications(after) == 2 * rows * groups


def test_groups_that_cannot_be_summed_first(proof: Any) -> None:
    b, y = layer((6,), 4, 6)
    proof.stays("sum of groups of features", b, b.reduce("sum", b.reshape(y, (3, 2, 6)), [1]))
    b, y = layer((6,), 4, 6)
    proof.stays("sum of groups of features", b, b.reduce("max", b.reshape(y, (6, 3, 2)), [2]))
    b, y = layer((6,), 4, 6)
    proof.stays("sum of groups of features", b, b.reduce("sum", b.reshape(y, (6, 3, 2)), [2]), y)
