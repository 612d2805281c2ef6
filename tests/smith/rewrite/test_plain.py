"""Rules that need no thought, and near misses where they must think twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder, Ref

SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)


def started(*shapes: tuple[int, ...]) -> Builder:
    builder = Builder()
    for place, shape in enumerate(shapes):
        builder.input("xyzuvw"[place], place, shape, "float32")
    return builder


@given(shape=SHAPES)
def test_dead_work(shape: Any, proof: Any) -> None:
    b = started(shape)
    b.map("exp", b.map("neg", "x"))
    after = proof.holds("dead work", b, b.map("tanh", "x"))
    assert list(after.nodes) == ["x", "tanh"]


def test_what_an_output_needs_is_not_dead_and_inputs_stay(proof: Any) -> None:
    b = started((3,), (3,))
    proof.stays("dead work", b, b.map("tanh", b.map("neg", "x")))


@given(shape=SHAPES)
def test_common_subexpressions(shape: Any, proof: Any) -> None:
    b = started(shape)
    one, other = b.map("exp", b.map("neg", "x")), b.map("exp", b.map("neg", "x"))
    after = proof.holds("common subexpressions", b, b.map("add", one, other))
    assert len(after.nodes) == 4


def test_calls_are_shared_unless_they_draw(proof: Any) -> None:
    b = started((3, 3))
    twice = [b.call("mm", "aten.mm.default", ([Ref("x"), Ref("x")], {}), (3, 3), "float32") for _ in range(2)]
    assert len(proof.holds("common subexpressions", b, b.map("mul", *twice)).nodes) == 3
    b = started((3, 3))
    twice = [b.call("rand", "aten.rand_like.default", ([Ref("x")], {}), (3, 3), "float32") for _ in range(2)]
    proof.stays("common subexpressions", b, b.map("mul", *twice))


def test_numbers_that_only_look_alike_are_not_shared(proof: Any) -> None:
    b = started((3,))
    one, other = b.map("mul", "x", 0.0), b.map("mul", "x", -0.0)
    proof.stays("common subexpressions", b, b.map("add", one, other))


@pytest.mark.parametrize(
    "operands", [("mul", "x", 1), ("mul", 1.0, "x"), ("div", "x", 1), ("add", 0, "x"), ("sub", "x", 0.0)]
)
def test_neutral_operand(operands: Any, proof: Any) -> None:
    b = started((2, 3))
    after = proof.holds("neutral operand", b, b.map("tanh", b.map(*operands)))
    assert len(after.nodes) == 2


@pytest.mark.parametrize(
    "operands", [("sub", 0, "x"), ("div", 1, "x"), ("mul", "x", 0), ("add", "x", 1), ("maximum", "x", 0)]
)
def test_not_neutral(operands: Any, proof: Any) -> None:
    b = started((2, 3))
    proof.stays("neutral operand", b, b.map(*operands))


def test_a_neutral_number_that_changes_the_dtype_stays(proof: Any) -> None:
    b = started((3,))
    proof.stays("neutral operand", b, b.map("mul", b.map("gt", "x", 0.0, dtype="bool"), 1.0))


@given(shape=SHAPES)
def test_double_negation(shape: Any, proof: Any) -> None:
    b = started(shape)
    assert proof.holds("double negation", b, b.map("tanh", b.map("neg", b.map("neg", "x"))))["tanh"].inputs == ("x",)
    b = started(shape)
    proof.stays("double negation", b, b.map("neg", b.map("abs", "x")))


@given(shape=SHAPES, inner=st.sampled_from(["exp", "abs", "sigmoid", "relu", "square", "sum of squares"]))
def test_operation_without_effect(shape: Any, inner: str, proof: Any) -> None:
    b = started(shape)
    made = {
        "relu": lambda: b.map("maximum", "x", 0.5),
        "square": lambda: b.map("mul", "x", "x"),
        "sum of squares": lambda: b.reduce("sum", b.map("mul", "x", "x"), (0,)),
    }.get(inner, lambda: b.map(inner, "x"))()
    proof.holds("operation without effect", b, b.map("maximum", made, 0.0))
    proof.holds("operation without effect", b, b.map("abs", made))


def test_operation_with_effect_stays(proof: Any) -> None:
    for inner in (("tanh", "x"), ("minimum", "x", 1.0), ("mul", "x", "y"), ("sub", 1.0, "x")):
        b = started((3,), (3,))
        proof.stays("operation without effect", b, b.map("maximum", b.map(*inner), 0.0))
    b = started((3,))
    proof.stays("operation without effect", b, b.map("maximum", b.map("exp", "x"), 0.5))
    b = started((3,))
    b.map("abs", b.map("neg", "x"))
    assert proof.holds("operation without effect", b, "abs")["abs_2"].inputs == ("x",)


@given(data=st.data(), shape=st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple))
def test_permute_of_permute(data: Any, shape: Any, proof: Any) -> None:
    b = started(shape)
    orders = [data.draw(st.permutations(range(len(shape))).filter(lambda o: list(o) != sorted(o))) for _ in range(2)]
    after = proof.holds("view of a view", b, b.map("tanh", b.permute(b.permute("x", orders[0]), orders[1])))
    assert sum(node.kind == "view" for node in after) <= 1


def test_reshape_of_reshape(proof: Any) -> None:
    b = started((2, 6))
    b.nodes["one"] = replace(b.nodes[b.reshape("x", (3, 4))], name="one")
    b.nodes["two"] = replace(b.nodes["one"], name="two", inputs=("one",), shape=(12,))  # the builder would not make it
    after = proof.holds("view of a view", b, b.map("tanh", "two"))
    assert sum(node.kind == "view" for node in after) == 1


def test_a_reshape_of_a_permute_moves_elements(proof: Any) -> None:
    b = started((2, 6))
    proof.stays("view of a view", b, b.reshape(b.permute("x", (1, 0)), (12,)))


@given(function=st.sampled_from(["sum", "max", "min", "prod"]))
def test_reduction_of_reduction(function: str, proof: Any) -> None:
    b = started((2, 3, 4))
    after = proof.holds("reduction of a reduction", b, b.reduce(function, b.reduce(function, "x", (2,)), (0,)))
    assert [node.axes for node in after if node.kind == "reduce"] == [(0, 2)]


def test_reductions_of_another_kind_or_that_are_needed_stay(proof: Any) -> None:
    b = started((2, 3))
    proof.stays("reduction of a reduction", b, b.reduce("sum", b.reduce("max", "x", (1,)), (0,)))
    b = started((2, 3))
    inner = b.reduce("sum", "x", (1,))
    proof.stays("reduction of a reduction", b, b.reduce("sum", inner, (0,)), inner)


@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), axis=st.integers(0, 2))
def test_a_reshape_comes_after_the_map(shape: Any, axis: int, proof: Any) -> None:
    b = started(shape, shape, (1, 1), (shape[-1],))
    inner = b.map("exp", "x")
    new = (*shape[: axis % (len(shape) + 1)], 1, *shape[axis % (len(shape) + 1) :])
    summed = b.map("add", b.reshape(inner, new), b.reshape("y", new))
    after = proof.holds("reshape later", b, b.map("mul", b.map("sub", summed, "z"), 2.0))
    assert after[after.outputs[0]].function == "reshape"


def test_a_reshape_comes_after_a_map_with_broadcast_operands_where_only_ones_come_and_go(proof: Any) -> None:
    b = started((4, 3, 5), (3, 1), (5,))
    top = b.reshape(b.reduce("max", "x", (0,)), (3, 5))
    after = proof.holds("reshape later", b, b.map("sub", b.map("mul", top, "y"), "z"))
    assert [node.shape for node in after if node.kind == "map"] == [(1, 3, 5), (1, 3, 5)]


def test_a_reshape_stays_where_an_operand_has_no_place_in_the_first_shape(proof: Any) -> None:
    b = started((4, 6), (6,))
    b.reshape(b.map("exp", "x"), (2, 2, 6))
    proof.stays("reshape later", b, b.map("add", "view", "y"))
    b = started((4, 6), (2, 12))  # a view of an input costs nothing
    proof.stays("reshape later", b, b.map("add", b.reshape("x", (2, 12)), "y"))
    b = started((4, 1), (4, 6))  # the map is larger than what was reshaped
    proof.stays("reshape later", b, b.map("add", b.reshape(b.map("exp", "x"), (1, 4, 1)), "y"))


def test_a_slice_is_no_permutation(proof: Any) -> None:
    b = started((4, 6))
    proof.stays("view of a view", b, b.slice(b.permute("x", (1, 0)), 0, 1, 2, 3))


@given(shape=SHAPES)
def test_a_choice_is_swapped_instead_of_negating_its_condition(shape: Any, proof: Any) -> None:
    b = started(shape, shape)
    condition = b.map("not", b.map("gt", "x", 0.5, dtype="bool"), dtype="bool")
    after = proof.holds("negated condition", b, b.map("where", condition, "y", 2.0, dtype="float32"))
    assert "not" not in [node.function for node in after]
    b = started(shape, shape)
    proof.stays("negated condition", b, b.map("where", b.map("gt", "x", "y", dtype="bool"), "x", "y"))
