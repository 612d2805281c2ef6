"""Scans that are said as torch can say them, and as they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder, Ref, ScanMode

FUNCTIONS = st.sampled_from(["sum", "prod", "max", "min"])


def flipped(b: Builder, x: str, axis: int) -> str:
    size = b.shape(x)[axis]
    return b.slice(x, axis, size - 1, -1, size)


@given(
    shape=st.lists(st.integers(2, 5), min_size=1, max_size=3).map(tuple),
    axis=st.integers(0, 2), function=FUNCTIONS, backwards=st.booleans(), without=st.booleans(),
)  # fmt: skip
def test_backward_scan(
    shape: tuple[int, ...], axis: int, function: str, backwards: bool, without: bool, proof: Any
) -> None:
    b, axis = Builder(), axis % len(shape)
    b.input("x", 0, shape, "float32")
    mode = ScanMode(backwards, without and function in ("sum", "prod"))
    scan = b.scan(function, flipped(b, "x", axis), axis, mode)
    after = proof.holds("backward scan", b, b.map("neg", flipped(b, scan, axis)))
    assert [node.kind for node in after] == ["input", "scan", "map"]


def test_a_scan_that_is_flipped_along_another_axis_stays(proof: Any) -> None:
    b = Builder()
    b.input("x", 0, (4, 5), "float32")
    proof.stays("backward scan", b, flipped(b, b.scan("sum", flipped(b, "x", 0), 1), 1))
    proof.stays("backward scan", b, flipped(b, b.scan("sum", flipped(b, "x", 1), 1), 0))
    proof.stays("backward scan", b, flipped(b, b.scan("sum", "x", 1), 1))
    scan = b.scan("sum", flipped(b, "x", 1), 1)
    proof.stays("backward scan", b, scan, flipped(b, scan, 1))  # it is needed as it is


def shifted(b: Builder, maker: str, start: int = 0, first: int = 1) -> str:
    b.input("x", 0, (3, 5), "float32")
    b.input("like", 1, (3, first), "float32")
    edge = b.call("edge", f"aten.{maker}.default", ([Ref("like")], {}), (3, first), "float32")
    return b.join("cat", [edge, b.slice("x", 1, start, 1, 5 - first)], 1)


@pytest.mark.parametrize(("function", "maker"), [("sum", "zeros_like"), ("prod", "ones_like")])
def test_exclusive_scan(function: str, maker: str, proof: Any) -> None:
    b = Builder()
    after = proof.holds("exclusive scan", b, b.scan(function, shifted(b, maker), 1))
    assert [node.arguments.exclusive for node in after if node.kind == "scan"] == [True]


def test_other_edges_and_other_parts_stay(proof: Any) -> None:
    for function, maker, start, first in (
        ("sum", "ones_like", 0, 1), ("max", "zeros_like", 0, 1),
        ("sum", "zeros_like", 1, 1), ("sum", "zeros_like", 0, 2),
    ):  # fmt: skip
        b = Builder()
        proof.stays("exclusive scan", b, b.scan(function, shifted(b, maker, start, first), 1))
