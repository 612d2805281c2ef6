"""Attention that was written out."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder, Graph, Ref
from kforge.smith.ir.interpret import evaluate
from kforge.smith.rewrite import RULES

SIZES = st.integers(1, 5)


def written(
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    scale: tuple[Any, ...],
    axis: int = 3,
    bias: tuple[str, tuple[int, ...]] | None = None,
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
    if bias is not None:
        extra = b.input("extra", 3, bias[1], "float32")
        if bias[0] in ("largest", "positive"):  # which are masked
            limit = b.map("sub", b.reduce("max", extra, (len(bias[1]) - 1,)), 1e-9) if bias[0] == "largest" else 0.0
            x = b.map("where", b.map("gt", extra, limit, dtype="bool"), -math.inf, x, dtype="float32")
        else:
            x = b.map("add", extra, x) if bias[0] == "turned" else b.map(bias[0], x, extra)
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


@given(
    n=SIZES,
    m=st.integers(2, 5),
    kept=st.sampled_from([(), (0,), (1, 2), (2, 3), (0, 1, 2, 3)]),
    function=st.sampled_from(["add", "sub", "turned", "largest"]),
)
def test_attention_with_a_bias(n: int, m: int, kept: tuple[int, ...], function: str, proof: Any) -> None:
    q, k, scores = (2, 3, n, 4), (2, 3, m, 4), (2, 3, n, m)
    kept = (*kept, 3) if function == "largest" else kept  # else all of them would be masked
    shape = tuple(size if axis in kept else 1 for axis, size in enumerate(scores))
    shape = shape[next((axis for axis, size in enumerate(shape) if size > 1), 3) :]
    b, names = written(q, k, k, ("mul", 0.3), bias=(function, shape))
    after = proof.holds("attention", b, names["end"])
    assert [node.function for node in after if node.kind == "call"] == ["aten.scaled_dot_product_attention.default"]


def test_what_sees_nothing_stays_nan() -> None:
    shape = (1, 1, 2, 3)
    b, names = written(shape, (1, 1, 4, 3), (1, 1, 4, 3), (), bias=("positive", (2, 4)))
    before = Graph(b.nodes, (names["end"],))
    after = next(rule for rule in RULES if rule.name == "attention").apply(before)
    assert after is not None
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(node.shape, generator=draw) for node in before if node.kind == "input"]
    inputs[3] = torch.tensor([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, 1.0, 1.0]])  # the second query sees nothing
    (old,), (new,) = evaluate(before, inputs, {}), evaluate(after, inputs, {})
    assert bool(old[0, 0, 1].isnan().all())
    assert not bool(old[0, 0, 0].isnan().any())
    torch.testing.assert_close(new, old, equal_nan=True)


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
