"""Rules of shapes between kernels, and near misses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kforge.smith.ir.graph import Builder

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Shape


def started(*shapes: Shape) -> Builder:
    builder = Builder()
    for place, shape in enumerate(shapes):
        builder.input("xyzuvw"[place], place, shape, "float32")
    return builder


def soft(b: Builder, x: str, axis: int) -> str:
    grown = b.map("exp", b.map("sub", x, b.reduce("max", x, (axis,))))
    return b.map("div", grown, b.reduce("sum", grown, (axis,)))


@pytest.mark.parametrize(
    ("inner", "flat"),
    [((2, 3, 4, 5), (2, 3, 20)), ((2, 3, 4), (6, 4)), ((2, 1, 3), (2, 3)), ((4, 1, 3), (4, 1, 3, 1)), ((3, 2), (6,))],
)
def test_reshaped_back(inner: Shape, flat: Shape, proof: Any) -> None:
    b = started(inner)
    axis = max(axis for axis, size in enumerate(flat) if size != 1)
    after = proof.holds("reshaped back", b, b.reshape(soft(b, b.reshape("x", flat), axis), inner))
    assert all(node.kind != "view" for node in after)


def test_what_else_is_read_under_the_flat_shape_stays(proof: Any) -> None:
    b = started((2, 3, 4))
    flat = soft(b, b.reshape("x", (2, 12)), 1)
    proof.stays("reshaped back", b, b.reshape(flat, (2, 3, 4)), flat)
    b = started((2, 3, 4))
    proof.stays("reshaped back", b, b.reshape(soft(b, b.reshape("x", (2, 12)), 1), (2, 4, 3)))
    b = started((2, 12), (12,))
    proof.stays("reshaped back", b, b.reshape(b.map("mul", "x", "y"), (2, 3, 4)))
    b = started((2, 3, 4), (2, 12))
    proof.stays("reshaped back", b, b.reshape(b.map("mul", b.reshape("x", (2, 12)), "y"), (2, 3, 4)))


@pytest.mark.parametrize(("new", "axes"), [((2, 12), (1,)), ((6, 4), (0,)), ((2, 1, 3, 4), (2, 3)), ((24,), (0,))])
@pytest.mark.parametrize("function", ["sum", "max", "prod"])
def test_reduction_of_a_reshaped_one(new: Shape, axes: tuple[int, ...], function: str, proof: Any) -> None:
    b = started((2, 3, 4))
    after = proof.holds("reduction of a reshaped one", b, b.reduce(function, b.reshape(b.map("tanh", "x"), new), axes))
    assert all(node.kind != "reduce" or after[node.sources[0]].kind == "map" for node in after)


def test_what_is_read_across_is_reduced_row_by_row(proof: Any) -> None:
    """All at once would be one long row, and what lies across has no two neighbours in it."""
    for order, stays in (((0, 2, 1), True), ((1, 0, 2), False)):
        b = started((3, 3, 3), (3, 3, 3))
        rows = b.reduce("sum", b.map("mul", "x", b.permute("y", order)), (2,))
        total = b.reduce("sum", b.reshape(rows, (3, 3)), (1,))
        (proof.stays if stays else proof.holds)("reduction of a reshaped one", b, total)


def test_a_reduction_of_parts_of_axes_stays(proof: Any) -> None:
    b = started((2, 12))
    proof.stays("reduction of a reshaped one", b, b.reduce("sum", b.reshape(b.map("tanh", "x"), (2, 3, 4)), (2,)))
    b = started((2, 12))
    proof.stays("reduction of a reshaped one", b, b.reduce("sum", b.reshape("x", (24,)), (0,)))


@pytest.mark.parametrize(
    ("function", "inner", "outer", "axis"),
    [
        ("stack", (2, 3, 1, 1), (2, 3), 2), ("stack", (2, 3, 1, 1), (2, 3), 0), ("stack", (1, 2, 1, 3), (2, 1, 3), 1),
        ("stack", (1, 1), (), 0), ("cat", (2, 3, 1, 1), (2, 3), 1), ("cat", (2, 1, 3), (2, 3), 0),
        ("cat", (2, 3, 1, 1), (2, 1, 3), 1), ("cat", (1, 1), (1,), 0),
    ],
)  # fmt: skip
def test_a_reshape_comes_after_a_join(function: str, inner: Shape, outer: Shape, axis: int, proof: Any) -> None:
    b = started(inner, inner)
    views = [b.reshape(b.map("tanh", each), outer) for each in "xy"]
    after = proof.holds("reshape after a join", b, b.join(function, views, axis))
    assert all(after[name].kind == "map" for node in after if node.kind == "join" for name in node.sources)


def test_pieces_of_several_sizes_are_joined_before_a_reshape(proof: Any) -> None:
    b = started((2, 3, 1), (2, 4, 1))
    views = [b.reshape(b.map("tanh", each), b.shape(each)[:2]) for each in "xy"]
    proof.holds("reshape after a join", b, b.join("cat", views, 1))


def test_joins_that_a_reshape_cannot_follow_stay(proof: Any) -> None:
    rule = "reshape after a join"
    for shapes, outers, axis in (
        (((2, 3, 1), (2, 1, 1)), ((2, 3), (2, 1)), 1),  # an axis that one piece lacks
        (((2, 3, 1), (2, 1, 3)), ((2, 3), (2, 3)), 1),  # pieces of other shapes
        (((2, 6), (2, 6)), ((2, 2, 3), (2, 2, 3)), 1),  # more than axes of size one
    ):
        b = started(*shapes)
        views = [b.reshape(b.map("tanh", each), outer) for each, outer in zip("xy", outers, strict=True)]
        proof.stays(rule, b, b.join("cat", views, axis))
    b = started((2, 3, 1), (2, 3, 1))  # nobody makes these
    proof.stays(rule, b, b.join("stack", [b.reshape(each, (2, 3)) for each in "xy"], 0))
