"""Triangular products in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder, Ref
from kforge.smith.rewrite import triangles

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def _small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triangles, "BLOCK", 2)
        yield


def call(b: Builder, name: str, shape: tuple[int, ...], *arguments: Any) -> str:
    given_ = [Ref(each) if isinstance(each, str) else each for each in arguments]
    return b.call(name, f"aten.{name}.default", (given_, {}), shape, "float32")


def inputs(*shapes: tuple[int, ...]) -> Builder:
    b = Builder()
    for place, shape in enumerate(shapes):
        b.input("xy"[place], place, shape, "float32")
    return b


@given(size=st.integers(6, 30), other=st.integers(1, 5), kind=st.sampled_from(["tril", "triu"]), left=st.booleans())
def test_a_triangular_factor(size: int, other: int, kind: str, left: bool, proof: Any) -> None:
    b = inputs((size, size), (size, other) if left else (other, size))
    triangle = call(b, kind, (size, size), "x")
    product = call(b, "mm", b.shape("y"), *((triangle, "y") if left else ("y", triangle)))
    after = proof.holds("triangular factor", b, product)
    work = sum(node.size * after[node.sources[0]].shape[1] for node in after if node.function == "aten.mm.default")
    assert work <= 0.75 * size * size * other


@given(size=st.integers(6, 30), kind=st.sampled_from(["tril", "triu"]))
def test_two_triangles_of_a_kind(size: int, kind: str, proof: Any) -> None:
    b = inputs((size, size), (size, size))
    factors = [call(b, kind, (size, size), name) for name in "xy"]
    after = proof.holds("triangular factor", b, call(b, "mm", (size, size), *factors))
    work = sum(node.size * after[node.sources[0]].shape[1] for node in after if node.function == "aten.mm.default")
    assert work <= 0.55 * size**3
    assert sum(node.function == "aten.cat.default" for node in after) == 1


@given(size=st.integers(1, 12), kind=st.sampled_from(["tril", "triu"]))
def test_the_triangle_of_two_triangles_is_their_product(size: int, kind: str, proof: Any) -> None:
    b = inputs((size, size), (size, size))
    factors = [call(b, kind, (size, size), name) for name in "xy"]
    after = proof.holds("triangle of triangles", b, call(b, kind, (size, size), call(b, "mm", (size, size), *factors)))
    assert sum(node.function == f"aten.{kind}.default" for node in after) == 2
    b = inputs((size, size), (size, size))
    factors = [call(b, each, (size, size), name) for each, name in zip(("tril", "triu"), "xy", strict=True)]
    proof.stays("triangle of triangles", b, call(b, kind, (size, size), call(b, "mm", (size, size), *factors)))


@given(size=st.integers(6, 30), inner=st.integers(1, 5), kind=st.sampled_from(["tril", "triu"]))
def test_the_triangle_of_a_product(size: int, inner: int, kind: str, proof: Any) -> None:
    b = inputs((size, inner), (inner, size))
    after = proof.holds(
        "triangle of a product", b, call(b, kind, (size, size), call(b, "matmul", (size, size), "x", "y"))
    )
    work = sum(node.size * inner for node in after if node.function == "aten.mm.default")
    assert work <= 0.75 * size * size * inner


def test_products_that_stay(proof: Any) -> None:
    b = inputs((8, 8), (8, 8))  # from another diagonal on
    proof.stays("triangular factor", b, call(b, "mm", (8, 8), call(b, "tril", (8, 8), "x", 1), "y"))
    b = inputs((4, 4), (4, 4))  # too small
    proof.stays("triangular factor", b, call(b, "mm", (4, 4), call(b, "tril", (4, 4), "x"), "y"))
    b = inputs((8, 9), (9, 8))  # not square
    proof.stays("triangular factor", b, call(b, "mm", (8, 8), call(b, "tril", (8, 9), "x"), "y"))
    b = inputs((8, 8), (8, 9))
    proof.stays("triangle of a product", b, call(b, "tril", (8, 9), call(b, "mm", (8, 9), "x", "y")))
    b = inputs((8, 8), (8, 8))  # the product is needed
    product = call(b, "mm", (8, 8), "x", "y")
    proof.stays("triangle of a product", b, call(b, "tril", (8, 8), product), product)
