"""How a rule is proved: what it makes of a graph means the same, in float64, on random numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from kforge.smith.ir.graph import Builder, Graph
from kforge.smith.ir.interpret import evaluate
from kforge.smith.languages.cpp import Cpp
from kforge.smith.rewrite import RULES, simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.ir.graph import Shape


def graph_of(builder: Builder, *outputs: str) -> Graph:
    return Graph(builder.nodes, outputs, "tensor" if len(outputs) == 1 else "tuple")


def numbers(graph: Graph, seed: int) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(seed)

    def random(shape: Shape) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=draw)

    inputs = sorted((node for node in graph if node.kind == "input"), key=lambda node: node.arguments)
    return [random(node.shape) for node in inputs], {
        node.function: random(node.shape) for node in graph if node.kind == "parameter"
    }


def same_meaning(before: Graph, after: Graph, seed: int) -> None:
    """To 1e-10 of the largest number on the way, since outputs may be what is left of large ones."""
    inputs, state = numbers(before, seed)
    on_the_way = replace(before, outputs=tuple(node.name for node in before if node.dtype == "float32"))
    scale = max((float(each.abs().max()) for each in evaluate(on_the_way, inputs, state) if each.numel()), default=1.0)
    olds, news = evaluate(before, inputs, state), evaluate(after, inputs, state)
    for name, old, new in zip(before.outputs, olds, news, strict=True):
        assert (new.shape, new.dtype) == (old.shape, old.dtype)
        assert tuple(old.shape) == before[name].shape
        if old.numel() and old.dtype.is_floating_point:
            assert not old.isnan().any()
            assert float((old - new).abs().max()) <= 1e-10 * max(scale, 1.0), (before, after)
        else:
            assert torch.equal(old, new)
    values = evaluate(replace(after, outputs=tuple(after.nodes)), inputs, state)
    for node, value in zip(after, values, strict=True):  # what the nodes say of themselves is so
        assert not isinstance(value, torch.Tensor) or tuple(value.shape) == node.shape, node


class Proof:
    """One rule on one graph."""

    def __init__(self) -> None:
        self.rules = {rule.name: rule for rule in (*RULES, *Cpp.rules)}

    def holds(self, rule: str, builder: Builder, outputs: str | Sequence[str], seed: int = 0) -> Graph:
        """The rule applies, alone, and keeps the meaning; so do all rules together. Gives the graph after it."""
        before = graph_of(builder, *([outputs] if isinstance(outputs, str) else outputs))
        after = self.rules[rule].apply(before)
        assert after is not None, before
        same_meaning(before, after, seed)
        same_meaning(before, simplify(before)[0], seed)
        return after

    def stays(self, rule: str, builder: Builder, *outputs: str) -> None:
        """The rule finds nothing."""
        assert self.rules[rule].apply(graph_of(builder, *outputs)) is None

    same_meaning = staticmethod(same_meaning)
    graph_of = staticmethod(graph_of)


@pytest.fixture(scope="session")
def proof() -> Proof:
    return Proof()
