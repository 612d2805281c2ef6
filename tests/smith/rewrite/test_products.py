"""Products of matrices that are not needed, and those that only look like it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder, Graph, Ref

SIZES = st.integers(1, 6)


def call(b: Builder, function: str, shape: tuple[int, ...], *arguments: Any) -> str:
    given_ = [Ref(each) if isinstance(each, str) else each for each in arguments]
    return b.call(function.split(".")[1], function, (given_, {}), shape, "float32")


def calls(graph: Graph) -> list[str]:
    return [node.function for node in graph if node.kind == "call"]


def inputs(*shapes: tuple[int, ...]) -> Builder:
    b = Builder()
    for place, shape in enumerate(shapes):
        b.input("xyzu"[place], place, shape, "float32")
    return b


@given(n=SIZES, m=SIZES, batch=st.lists(SIZES, max_size=2).map(tuple), left=st.booleans(), embed=st.booleans())
def test_a_diagonal_factor_scales(n: int, m: int, batch: Any, left: bool, embed: bool, proof: Any) -> None:
    b = inputs((*batch, n) if embed else (n,), (*batch, n, m) if left else (*batch, m, n))
    if embed:
        factor = call(b, "aten.diag_embed.default", (*batch, n, n), "x")
    else:
        factor = call(b, "aten.diag.default", (n, n), "x")
    operands = (factor, "y") if left else ("y", factor)
    product = call(b, "aten.matmul.default", b.shape("y"), *operands)
    assert calls(proof.holds("diagonal factor", b, product)) == []


def test_a_diagonal_factor_and_a_vector_or_a_layer(proof: Any) -> None:
    b = inputs((4,), (4,))
    product = call(b, "aten.matmul.default", (4,), call(b, "aten.diag.default", (4, 4), "x"), "y")
    assert calls(proof.holds("diagonal factor", b, product)) == []
    for rows in ((), (3,), (2, 3)):
        b = inputs((4,), (*rows, 4))
        bias = b.parameter("p", "p", (4,), "float32")
        diagonal = call(b, "aten.diag.default", (4, 4), "x")
        product = call(b, "aten.linear.default", (*rows, 4), "y", diagonal, bias)
        assert calls(proof.holds("diagonal factor", b, product)) == []


def test_what_is_not_the_main_diagonal_stays(proof: Any) -> None:
    b = inputs((3,), (4, 4))
    factor = call(b, "aten.diag.default", (4, 4), "x", 1)
    proof.stays("diagonal factor", b, call(b, "aten.mm.default", (4, 4), factor, "y"))
    b = inputs((4, 4), (4,))  # of a matrix, diag takes the diagonal
    proof.stays("diagonal factor", b, call(b, "aten.matmul.default", (), call(b, "aten.diag.default", (4,), "x"), "y"))
    b = inputs((4, 4), (4, 4))  # another place for the new axes
    factor = call(b, "aten.diag_embed.default", (4, 4, 4), "x", 0, 0, 1)
    proof.stays("diagonal factor", b, call(b, "aten.matmul.default", (4, 4, 4), factor, "y"))


@given(n=SIZES, k=SIZES, how=st.sampled_from(["trace", "diag", "diagonal"]), layer=st.booleans())
def test_the_diagonal_of_a_product(n: int, k: int, how: str, layer: bool, proof: Any) -> None:
    b = inputs((n, k), (n, k) if layer else (k, n))
    product = call(b, "aten.linear.default" if layer else "aten.matmul.default", (n, n), "x", "y")
    end = call(b, f"aten.{how}.default", () if how == "trace" else (n,), product)
    assert calls(proof.holds("diagonal of a product", b, end)) == []


@given(batch=SIZES, n=SIZES, k=SIZES)
def test_the_diagonals_of_a_stack(batch: int, n: int, k: int, proof: Any) -> None:
    b = inputs((batch, n, k), (batch, k, n))
    product = call(b, "aten.bmm.default", (batch, n, n), "x", "y")
    assert (
        calls(proof.holds("diagonal of a product", b, call(b, "aten.diagonal.default", (batch, n), product, 0, -2, -1)))
        == []
    )


def test_other_diagonals_stay(proof: Any) -> None:
    rule = "diagonal of a product"
    b = inputs((3, 2), (2, 4))  # not square
    product = call(b, "aten.mm.default", (3, 4), "x", "y")
    proof.stays(rule, b, call(b, "aten.trace.default", (), product))
    b = inputs((3, 2), (2, 3))
    product = call(b, "aten.mm.default", (3, 3), "x", "y")
    proof.stays(rule, b, call(b, "aten.diagonal.default", (2,), product, 1))
    b = inputs((3, 2), (2, 3))  # the product is needed
    product = call(b, "aten.mm.default", (3, 3), "x", "y")
    proof.stays(rule, b, call(b, "aten.trace.default", (), product), product)
    b = inputs((3, 3, 2), (3, 2, 3))  # the first two axes of three
    product = call(b, "aten.bmm.default", (3, 3, 3), "x", "y")
    proof.stays(rule, b, call(b, "aten.diagonal.default", (3, 3), product))
    b = inputs((3, 2), (3, 2))  # with a bias
    product = call(b, "aten.linear.default", (3, 3), "x", "y", b.parameter("p", "p", (3,), "float32"))
    proof.stays(rule, b, call(b, "aten.trace.default", (), product))


@given(
    batch=st.lists(SIZES, max_size=2).map(tuple), small=st.integers(1, 3), large=st.integers(8, 12), right=st.booleans()
)
def test_the_order_of_a_chain(batch: Any, small: int, large: int, right: bool, proof: Any) -> None:
    """large x large @ large x large @ large x small: the small one first, and the same mirrored."""
    square = (*batch, large, large)
    if right:
        b = inputs(square, square, (large, small))
        end = call(
            b, "aten.matmul.default", (*batch, large, small), call(b, "aten.matmul.default", square, "x", "y"), "z"
        )
    else:
        b = inputs((*batch, small, large), square, square)
        end = call(
            b, "aten.matmul.default", (*batch, small, large), "x", call(b, "aten.matmul.default", square, "y", "z")
        )
    after = proof.holds("order of a chain", b, end)
    assert max(node.size for node in after if node.kind == "call") < large * large * max(1, len(batch)) * 36


def test_a_matrix_chain_before_a_vector(proof: Any) -> None:
    b = inputs((5, 8), (8, 9), (9,))
    end = call(b, "aten.matmul.default", (5,), call(b, "aten.mm.default", (5, 9), "x", "y"), "z")
    after = proof.holds("order of a chain", b, end)
    assert [node.shape for node in after if node.kind == "call"] == [(8,), (5,)]


@pytest.mark.parametrize("shapes", [((2, 8), (8, 8), (8, 8)), ((8, 8), (8, 8), (8, 8))])
def test_a_chain_in_a_good_order_stays(shapes: Any, proof: Any) -> None:
    b = inputs(*shapes)
    rows = shapes[0][0]
    product = call(b, "aten.mm.default", (rows, 8), "x", "y")
    proof.stays("order of a chain", b, call(b, "aten.mm.default", (rows, 8), product, "z"))


def test_a_chain_whose_middle_is_needed_stays(proof: Any) -> None:
    b = inputs((9, 9), (9, 9), (9, 1))
    product = call(b, "aten.mm.default", (9, 9), "x", "y")
    proof.stays("order of a chain", b, call(b, "aten.mm.default", (9, 1), product, "z"), product)
