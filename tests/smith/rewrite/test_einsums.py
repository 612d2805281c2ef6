"""Sums that are products of matrices."""

from __future__ import annotations

from typing import Any

import pytest

from kforge.smith.ir.graph import Builder, Ref

SIZES = dict(zip("bhijkl", (2, 3, 4, 5, 6, 7), strict=True))


def summed(equation: str) -> tuple[Builder, str]:
    b, (given, _, out) = Builder(), equation.partition("->")
    names = [
        b.input("xyz"[place], place, tuple(SIZES[label] for label in labels if label in SIZES), "float32")
        for place, labels in enumerate(given.split(","))
    ]
    shape = tuple(SIZES[label] for label in out)
    return b, b.call("einsum", "aten.einsum.default", ([equation, [Ref(n) for n in names]], {}), shape, "float32")


@pytest.mark.parametrize(
    "equation",
    ["ij,jk->ik", "bij,jk->bik", "bij,kj->bik", "bhij,bhkj->bhik", "ij,jk->ki", "bji,bjk->bki", "hbij,jk->bikh"],
)
def test_an_einsum_is_a_product(equation: str, proof: Any) -> None:
    b, name = summed(equation)
    after = proof.holds("einsum", b, name)
    assert [node.function for node in after if node.kind == "call"] == ["aten.matmul.default"]


@pytest.mark.parametrize(
    "equation", ["ij,jk->ijk", "ij,kl->ijkl", "ij,ij->i", "i,i->i", "ii,ik->k", "ij,jk,kl->il", "ijk,jkl->il"]
)
def test_what_is_no_product(equation: str, proof: Any) -> None:
    b, name = summed(equation)
    proof.stays("einsum", b, name)
