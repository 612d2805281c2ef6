"""Attention that was written out."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kforge.smith.graph import Builder, Ref

SIZES = st.integers(1, 5)


def written(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], scale: tuple[Any, ...], axis: int = 3
) -> tuple[Builder, dict[str, str]]:
    b = Builder()
    for place, (name, shape) in enumerate({"query": q, "key": k, "value": v}.items()):
        b.input(name, place, shape, "float32")
    turned = b.permute("key", (*range(len(k) - 2), len(k) - 1, len(k) - 2))
    names = {
        "product": b.call(
            "matmul", "aten.matmul.default", ([Ref("query"), Ref(turned)], {}), (*q[:-1], k[-2]), "float32"
        )
    }
    names["scores"] = x = b.map(*scale[:1], names["product"], *scale[1:]) if scale else names["product"]
    grown = b.map("exp", b.map("sub", x, b.reduce("max", x, (axis,))))
    names["softmax"] = b.map("div", grown, b.reduce("sum", grown, (axis,)))
    arguments = ([Ref(names["softmax"]), Ref("value")], {})
    names["end"] = b.call("matmul", "aten.matmul.default", arguments, (*q[:-1], v[-1]), "float32")
    return b, names


@given(
    batch=SIZES,
    heads=SIZES,
    n=SIZES,
    m=st.integers(2, 5),
    d=SIZES,
    scale=st.sampled_from([(), ("mul", 0.3), ("div", 8.0)]),
)
def test_attention(batch: int, heads: int, n: int, m: int, d: int, scale: Any, proof: Any) -> None:
    b, names = written((batch, heads, n, d), (batch, heads, m, d), (batch, heads, m, d), scale)
    after = proof.holds("attention", b, names["end"])
    assert [node.function for node in after if node.kind == "call"] == ["aten.scaled_dot_product_attention.default"]


def test_what_is_not_attention(proof: Any) -> None:
    shape = (2, 3, 4, 5)
    b, names = written(shape, shape, shape, ("mul", 2.0), axis=2)  # along the queries
    proof.stays("attention", b, names["end"])
    for needed in ("product", "scores", "softmax"):
        b, names = written(shape, shape, shape, ("mul", 2.0))
        proof.stays("attention", b, names["end"], names[needed])
    b, names = written(shape, shape, shape, ("tanh",))
    proof.stays("attention", b, names["end"])
    b, names = written(shape, (1, 3, 4, 5), (1, 3, 4, 5), ())  # broadcast
    proof.stays("attention", b, names["end"])
    b, names = written(shape, shape, (2, 3, 4, 7), ())  # values of another length
    proof.stays("attention", b, names["end"])
