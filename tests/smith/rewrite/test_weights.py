"""Scales and shifts that go into weights, those that had better not, and biases that come out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder, Ref

RULE, BIAS = "scale into weights", "bias into kernels"


def layer(kind: str, bias: bool) -> tuple[Builder, str, tuple[int, ...]]:
    """And the shape of something with one value for each feature."""
    b = Builder()
    x_shape, w_shape, function, shape, per = {
        "linear": ((40, 3), (4, 3), "aten.linear.default", (40, 4), (4,)),
        "conv": ((5, 3, 7, 8), (4, 3, 2, 2), "aten.conv2d.default", (5, 4, 6, 7), (4, 1, 1)),
        "transposed": ((5, 3, 7, 8), (3, 4, 2, 2), "aten.conv_transpose2d.input", (5, 4, 8, 9), (1, 4, 1, 1)),
    }[kind]
    given_ = [Ref(b.input("x", 0, x_shape, "float32")), Ref(b.parameter("w", "w", w_shape, "float32"))]
    if bias:
        given_.append(Ref(b.parameter("b", "b", (4,), "float32")))
    return b, b.call("layer", function, (given_, {}), shape, "float32"), per


KINDS = st.sampled_from(["linear", "conv", "transposed"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "sub", "mul", "rsub", "rmul", "div"]), st.sampled_from(["feature", "one", "number"])
    ),
    min_size=1,
    max_size=4,
)


@given(kind=KINDS, steps=STEPS, seed=st.integers(0, 99))
def test_what_each_feature_is_scaled_and_shifted_by(kind: str, steps: Any, seed: int, proof: Any) -> None:
    b, y, per = layer(kind, bias=True)
    for number, (function, what) in enumerate(steps):
        c: Any = 1.5
        if what != "number":
            c = b.parameter(f"p{number}", f"p{number}", per if what == "feature" else (1,), "float32")
        if function == "div":
            y = b.map("div", y, b.map("add", b.map("mul", c, c), 0.5))
        else:
            y = b.map(function.removeprefix("r"), *((c, y) if function[0] == "r" else (y, c)))
    after = proof.holds(RULE, b, y, seed)
    assert after[after.outputs[0]].kind == "call"


@given(kind=KINDS)
def test_a_batch_norm_becomes_weights_and_a_bias(kind: str, proof: Any) -> None:
    b, y, per = layer(kind, bias=False)
    mean, spread, weight, bias = (b.parameter(name, name, per, "float32") for name in ("m", "v", "g", "h"))
    root = b.map("rsqrt", b.map("add", b.map("mul", spread, spread), 1e-5))
    value = b.map("mul", b.map("mul", b.map("sub", y, mean), root), weight)
    after = proof.holds(RULE, b, b.map("add", value, bias))
    assert after[after.outputs[0]].kind == "call"


@pytest.mark.parametrize("shape", [(40, 1), (40, 4), (1, 40, 4)])
def test_what_is_not_for_each_feature_stays(shape: tuple[int, ...], proof: Any) -> None:
    b, y, _ = layer("linear", bias=True)
    proof.stays(RULE, b, b.map("mul", y, b.parameter("p", "p", shape, "float32")))


def test_scales_that_stay(proof: Any) -> None:
    b, y, per = layer("conv", bias=True)  # a kernel passes over it anyway
    scaled = b.map("mul", y, b.parameter("p", "p", per, "float32"))
    proof.stays(RULE, b, b.map("tanh", scaled))
    b, y, per = layer("conv", bias=True)  # it depends on the input
    proof.stays(RULE, b, b.map("mul", y, b.input("z", 1, per, "float32")))
    b, y, per = layer("conv", bias=True)  # what is not scaled is needed too
    proof.stays(RULE, b, b.map("mul", y, 2.0), y)
    b, y, per = layer("linear", bias=True)  # divided by it
    proof.stays(RULE, b, b.map("div", 1.0, y))
    b, y, per = layer("linear", bias=False)  # there is no bias that a number could be added to
    proof.stays(RULE, b, b.map("add", y, 1.0))
    b = Builder()  # fewer data than weights
    x, w = Ref(b.input("x", 0, (2, 3), "float32")), Ref(b.parameter("w", "w", (4, 3), "float32"))
    y = b.call("linear", "aten.linear.default", ([x, w], {}), (2, 4), "float32")
    proof.stays(RULE, b, b.map("mul", y, 2.0))


def product(kind: str) -> tuple[Builder, str]:
    """With a bias."""
    b = Builder()
    x, bias = Ref(b.input("x", 0, (6, 3), "float32")), Ref(b.parameter("b", "b", (4,), "float32"))
    w = Ref(b.parameter("w", "w", (4, 3) if kind == "linear" else (3, 4), "float32"))
    if kind == "linear":
        return b, b.call("layer", "aten.linear.default", ([x, w, bias], {}), (6, 4), "float32")
    return b, b.call("layer", "aten.addmm.default", ([bias, x, w], {}), (6, 4), "float32")


@given(kind=st.sampled_from(["linear", "addmm"]), seed=st.integers(0, 99))
def test_a_bias_is_added_by_the_kernels_that_follow(kind: str, seed: int, proof: Any) -> None:
    b, y = product(kind)
    turned = b.permute(y, (1, 0))
    outputs = [b.map("tanh", y), b.reduce("sum", turned, (1,)), b.scan("max", turned, 0)]
    after = proof.holds(BIAS, b, outputs, seed)
    assert [len(node.sources) for node in after if node.kind == "call"] == [2]


def test_a_bias_that_stays(proof: Any) -> None:
    b, y = product("linear")  # it is given back
    proof.stays(BIAS, b, y)
    b, y = product("linear")  # a view of it is
    proof.stays(BIAS, b, b.map("tanh", y), b.permute(y, (1, 0)))
    b, y = product("linear")  # another call reads it
    again = [Ref(y), Ref(b.parameter("v", "v", (5, 4), "float32"))]
    proof.stays(BIAS, b, b.map("tanh", y), b.call("next", "aten.linear.default", (again, {}), (6, 5), "float32"))
    b, y, _ = layer("linear", bias=False)
    proof.stays(BIAS, b, b.map("tanh", y))
    b, y, _ = layer("conv", bias=True)  # a library adds it while it has the sums in registers
    proof.stays(BIAS, b, b.map("tanh", y))
