"""Numbers that meet numbers; and that float32 keeps its digits when they do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder, Graph
from kforge.smith.ir.interpret import evaluate
from kforge.smith.rewrite import simplify

NUMBERS = st.one_of(st.floats(-100, 100).filter(lambda c: abs(c) > 1e-2), st.sampled_from([1, -1, 0, 2, -3, 0.5]))
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "sub", "rsub", "mul", "div", "neg"]), NUMBERS), min_size=2, max_size=6
)


def chain(steps: Any, shape: tuple[int, ...] = (4, 3)) -> tuple[Builder, str]:
    b = Builder()
    value = b.input("x", 0, shape, "float32")
    for function, number in steps:
        match function:
            case "neg":
                value = b.map("neg", value)
            case "rsub":
                value = b.map("sub", number, value)
            case "div":
                value = b.map("div", value, number or 1.0)
            case _:
                value = b.map(function, value, number)
    return b, value


def count(graph: Graph) -> int:
    return sum(node.kind == "map" for node in graph)


@given(steps=STEPS, seed=st.integers(0, 99))
def test_chains_keep_their_value_and_get_no_longer(steps: Any, seed: int, proof: Any) -> None:
    b, end = chain(steps)
    before = proof.graph_of(b, end)
    after, applied = simplify(before)
    proof.same_meaning(before, after, seed)
    assert count(after) <= count(before)
    if "chain of scalars" in applied:
        assert count(after) < count(before)


@given(steps=STEPS, spread=st.sampled_from([1e-3, 1.0, 1e4]), middle=st.sampled_from([0.0, 1.0, 1e4]))
def test_in_float32_they_stay_as_near_to_the_truth_as_they_were(steps: Any, spread: float, middle: float) -> None:
    b, end = chain(steps, (500,))
    before = Graph(b.nodes, (end,))
    after, _ = simplify(before)
    x = (torch.randn(500, generator=torch.Generator().manual_seed(0)) * spread + middle).float()
    truth = evaluate(before, [x.double()], {})[0]
    scale = float(truth.pow(2).mean().sqrt())
    assume(scale > 0)
    errors = [float((evaluate(graph, [x], {})[0].double() - truth).abs().max()) / scale for graph in (before, after)]
    assert math.isfinite(errors[1])
    assert errors[1] <= max(2e-6, 4 * errors[0])


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([("mul", 2.0), ("mul", 3.0)], 1),
        ([("add", 2), ("sub", 5)], 1),
        ([("mul", 2.0), ("add", 1.0), ("div", 4.0)], 2),
        ([("mul", 2.0), ("neg", 0)], 1),
        ([("rsub", 1.0), ("rsub", 1.0)], 0),
        ([("mul", 2.0), ("div", 2.0)], 0),
        ([("mul", 3.0), ("add", 1.0), ("mul", 2.0), ("add", 1.0), ("neg", 0), ("mul", 0.5)], 2),
    ],
)
def test_what_is_left_of_a_chain(steps: Any, left: int, proof: Any) -> None:
    b, end = chain(steps)
    assert count(proof.holds("chain of scalars", b, end)) == left


@pytest.mark.parametrize(
    "steps",
    [
        [("add", 2.0), ("mul", 3.0)],  # as short as it gets
        [("add", 2.0), ("mul", 3.0), ("add", 1.0)],  # x + 2 may be small while 3x is not
        [("add", 2.0**23), ("sub", 2.0**23)],  # rounds
        [("mul", 1e25), ("mul", 1e25)],
        [("mul", 1e-25), ("mul", 1e-25)],
        [("mul", 0.0), ("mul", 2.0)],  # zero times infinity is not zero; one rule less to think about
    ],
)
def test_chains_that_stay(steps: Any, proof: Any) -> None:
    b, end = chain(steps)
    proof.stays("chain of scalars", b, end)


def test_what_is_needed_on_the_way_stays(proof: Any) -> None:
    b = Builder()
    x = b.input("x", 0, (3,), "float32")
    double = b.map("mul", x, 2.0)
    proof.stays("chain of scalars", b, b.map("mul", double, 3.0), double)
    proof.stays("chain of scalars", b, b.map("add", b.map("mul", double, 3.0), b.map("tanh", double)))


def test_numbers_are_computed_now(proof: Any) -> None:
    b = Builder()
    x = b.input("x", 0, (3,), "float32")
    after = proof.holds("constant folding", b, b.map("add", x, b.map("mul", 2, 3.5)))
    assert after["add"].inputs == ("x", 7.0)
    b = Builder()
    proof.stays("constant folding", b, b.map("mul", 2, 3.5))  # it is what is asked for
    b = Builder()
    x = b.input("x", 0, (3,), "float32")
    proof.stays("constant folding", b, b.map("add", x, b.map("div", 1.0, 0.0)))
    proof.stays("constant folding", b, b.map("add", x, b.map("log", -1.0)))


@given(function=st.sampled_from(["maximum", "minimum"]), one=st.floats(-2, 2), other=st.floats(-2, 2))
def test_bound_of_a_bound(function: str, one: float, other: float, proof: Any) -> None:
    b = Builder()
    x = b.input("x", 0, (9,), "float32")
    assert count(proof.holds("bound of a bound", b, b.map(function, b.map(function, x, one), other))) == 1


def test_both_bounds_stay(proof: Any) -> None:
    b = Builder()
    x = b.input("x", 0, (9,), "float32")
    proof.stays("bound of a bound", b, b.map("minimum", b.map("maximum", x, -1.0), 1.0))
