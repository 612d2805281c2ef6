"""Softmax and what is around it."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder, Graph
from kforge.smith.ir.interpret import evaluate
from kforge.smith.rewrite import simplify

SHAPES = st.lists(st.integers(2, 5), min_size=1, max_size=4).map(tuple)


def softmax(b: Builder, x: str, axes: Any) -> str:
    grown = b.map("exp", b.map("sub", x, b.reduce("max", x, axes)))
    return b.map("div", grown, b.reduce("sum", grown, axes))


def maps(graph: Graph) -> list[str]:
    return [node.function for node in graph if node.kind == "map"]


@given(shape=SHAPES, data=st.data(), how=st.sampled_from(["add", "sub", "radd"]), number=st.booleans())
def test_a_shift_before_a_softmax_is_dead(shape: Any, data: Any, how: str, number: bool, proof: Any) -> None:
    b = Builder()
    x, axis = b.input("x", 0, shape, "float32"), data.draw(st.integers(0, len(shape) - 1))
    rows = tuple(1 if place == axis else size for place, size in enumerate(shape))
    c: Any = 1e3 if number else b.parameter("c", "c", rows, "float32")
    shifted = b.map("add", c, x) if how == "radd" else b.map(how, x, c)
    after = proof.holds("shift before a softmax", b, softmax(b, shifted, (axis,)))
    assert "c" not in after.nodes


def test_shifts_that_count(proof: Any) -> None:
    rule = "shift before a softmax"
    b = Builder()  # changes along the axis
    x, c = b.input("x", 0, (3, 4), "float32"), b.parameter("c", "c", (4,), "float32")
    proof.stays(rule, b, softmax(b, b.map("add", x, c), (1,)))
    b = Builder()  # constant along another
    x, c = b.input("x", 0, (3, 4), "float32"), b.parameter("c", "c", (3, 1), "float32")
    proof.stays(rule, b, softmax(b, b.map("add", x, c), (0,)))
    b = Builder()  # what was shifted is needed
    x = b.input("x", 0, (3, 4), "float32")
    shifted = b.map("add", x, 1.0)
    proof.stays(rule, b, softmax(b, shifted, (1,)), shifted)
    b = Builder()  # the sign turns
    x = b.input("x", 0, (3, 4), "float32")
    proof.stays(rule, b, softmax(b, b.map("sub", 1.0, x), (1,)))
    b = Builder()  # the shift makes it larger
    x, c = b.input("x", 0, (1, 4), "float32"), b.parameter("c", "c", (3, 1), "float32")
    proof.stays(rule, b, softmax(b, b.map("add", x, c), (1,)))
    b = Builder()  # a factor is no shift
    x = b.input("x", 0, (3, 4), "float32")
    proof.stays(rule, b, softmax(b, b.map("mul", x, 2.0), (1,)))


def test_logarithms_stay(proof: Any) -> None:
    """Of a softmax and of exp: where those underflow or overflow, they are infinite; exp of log where x is negative."""
    for outer, inner in (("log", "exp"), ("exp", "log")):
        b = Builder()
        x = b.input("x", 0, (3, 4), "float32")
        graph = Graph(b.nodes, (b.map(outer, b.map(inner, x)),))
        assert simplify(graph) == (graph, ())
    b = Builder()
    x = b.input("x", 0, (2, 3), "float32")
    graph = Graph(b.nodes, (b.map("log", softmax(b, x, (1,))),))
    far = torch.tensor([[0.0, -1e4, 1e4], [0.0, 1.0, 2.0]], dtype=torch.float64)
    assert torch.equal(evaluate(graph, [far], {})[0], evaluate(simplify(graph)[0], [far], {})[0])


@given(shape=SHAPES, data=st.data())
def test_the_largest_of_a_softmax(shape: Any, data: Any, proof: Any) -> None:
    b = Builder()
    x, axes = b.input("x", 0, shape, "float32"), data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    proof.holds("largest of a softmax", b, b.reduce("max", softmax(b, x, axes), axes))


def test_the_largest_along_another_axis_or_of_another_quotient_stays(proof: Any) -> None:
    b = Builder()
    x = b.input("x", 0, (3, 4), "float32")
    proof.stays("largest of a softmax", b, b.reduce("max", softmax(b, x, (1,)), (0,)))
    b = Builder()
    x, y = b.input("x", 0, (3, 4), "float32"), b.input("y", 1, (3, 1), "float32")
    grown = b.map("exp", b.map("sub", x, b.reduce("max", x, (1,))))
    proof.stays("largest of a softmax", b, b.reduce("max", b.map("div", grown, y), (1,)))  # y may be negative


@given(shape=SHAPES, data=st.data(), how=st.sampled_from(["times", "turned", "over", "alone"]))
def test_a_softmax_that_is_summed_is_divided_once(shape: Any, data: Any, how: str, proof: Any) -> None:
    b = Builder()
    x, axes = b.input("x", 0, shape, "float32"), data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    chances = softmax(b, x, axes)
    c: Any = b.parameter("c", "c", shape[data.draw(st.integers(0, len(shape))) :], "float32")
    product = {
        "times": lambda: b.map("mul", chances, c), "turned": lambda: b.map("mul", c, chances),
        "over": lambda: b.map("div", chances, b.map("exp", c)), "alone": lambda: chances,
    }[how]()  # fmt: skip
    after = proof.holds("softmax that is summed", b, b.reduce("sum", product, axes))
    assert all(node.function != "div" or node.shape != shape for node in after if how != "over")


def test_a_softmax_that_is_needed_otherwise_stays(proof: Any) -> None:
    rule = "softmax that is summed"
    for also in ("given", "summed along another axis", "squared", "below"):
        b = Builder()
        x, c = b.input("x", 0, (3, 4), "float32"), b.parameter("c", "c", (4,), "float32")
        chances = softmax(b, x, (1,))
        outputs = [b.reduce("sum", b.map("mul", chances, c), (1,))]
        match also:
            case "given":
                outputs.append(chances)
            case "summed along another axis":
                outputs.append(b.reduce("sum", chances, (0,)))
            case "squared":
                outputs.append(b.reduce("sum", b.map("mul", chances, chances), (1,)))
            case "below":
                outputs.append(b.reduce("sum", b.map("div", c, chances), (1,)))
        proof.stays(rule, b, *outputs)
    b = Builder()  # every chance counts several times, so the sum of them is the smaller work
    x, v = b.input("x", 0, (3, 4, 1), "float32"), b.input("v", 1, (3, 4, 5), "float32")
    proof.stays(rule, b, b.reduce("sum", b.map("mul", softmax(b, x, (1,)), v), (1,)))
