"""What treats every row alike comes before their repetition."""

from __future__ import annotations

from typing import Any

import pytest

from kforge.smith.ir.graph import Builder, Ref

REPEAT = "aten.repeat_interleave.self_int"


def repeated(b: Builder, x: str, times: int, axis: int) -> str:
    shape = tuple(size * times if i == axis else size for i, size in enumerate(b.shape(x)))
    return b.call("repeat_interleave", REPEAT, ([Ref(x), times, axis], {}), shape, "float32")


def linear(b: Builder, x: str, features: int, bias: bool) -> str:
    w = b.parameter("w", "w", (features, b.shape(x)[-1]), "float32")
    more = [Ref(b.parameter("b", "b", (features,), "float32"))] if bias else []
    arguments = ([Ref(x), Ref(w), *more], {})
    return b.call("linear", "aten.linear.default", arguments, (*b.shape(x)[:-1], features), "float32")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_layer_comes_first(axis: int, bias: bool, proof: Any) -> None:
    b = Builder()
    x = b.input("x", 0, (3, 2, 4), "float32")
    after = proof.holds("repeat after a layer", b, linear(b, repeated(b, x, 5, axis), 6, bias))
    (layer,) = (node for node in after if node.function == "aten.linear.default")
    assert layer.shape == (3, 2, 6)


def test_maps_come_first(proof: Any) -> None:
    b = Builder()
    x, y = b.input("x", 0, (3, 4), "float32"), b.input("y", 1, (4,), "float32")
    after = proof.holds("repeat after maps", b, b.map("add", repeated(b, x, 5, 0), y))
    assert next(node for node in after if node.kind == "map").shape == (3, 4)


def test_what_differs_between_equal_rows_stays_after(proof: Any) -> None:
    b = Builder()
    x, y = b.input("x", 0, (3, 4), "float32"), b.input("y", 1, (15, 1), "float32")
    proof.stays("repeat after maps", b, b.map("add", repeated(b, x, 5, 0), y))
    b = Builder()
    x = b.input("x", 0, (3, 4), "float32")
    many = repeated(b, x, 5, 0)
    proof.stays("repeat after maps", b, b.map("exp", many), many)
    b = Builder()
    wide = repeated(b, b.input("x", 0, (3, 4), "float32"), 5, 1)
    proof.stays("repeat after a layer", b, linear(b, wide, 6, bias=False))
