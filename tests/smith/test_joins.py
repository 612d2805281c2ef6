"""Products that are parts of one matrix, and which are written where they belong; see also rewrite/test_modules.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge import problems
from kforge.problems.instance import instantiate
from kforge.smith.frontend.trace import trace
from kforge.smith.fusion.joins import Joins
from kforge.smith.ir.graph import Builder, Graph, Ref
from kforge.smith.languages.cpp import Cpp
from kforge.smith.program import write
from kforge.smith.rewrite import simplify, triangles

if TYPE_CHECKING:
    from pathlib import Path

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, 12))

    def forward(self, x):
        return torch.tril(self.weight) @ x

def get_inputs():
    return [torch.randn(12, 12)]

def get_init_inputs():
    return []
"""


class Sketch(Builder):
    """Two inputs of 20 x 20, and calls of torch."""

    def __init__(self) -> None:
        super().__init__()
        for place, name in enumerate("xy"):
            self.input(name, place, (20, 20), "float32")

    def call_of(self, name: str, shape: tuple[int, int], *arguments: Any) -> str:
        return self.call(name, f"aten.{name}.default", (list(arguments), {}), shape, "float32")

    def product(self) -> str:
        return self.call_of("mm", (20, 20), Ref("x"), Ref("y"))

    def padded(self, x: str, before: int, after: int, *value: float) -> str:
        return self.call_of("constant_pad_nd", (20, 20 + before + after), Ref(x), [before, after], *value)

    def joined(self, axis: int, shape: tuple[int, int], *parts: str) -> str:
        return self.call_of("cat", shape, [Ref(part) for part in parts], axis)

    def joins(self, *outputs: str, is_left_to_torch: bool = True) -> Joins:
        return Joins(Graph(self.nodes, outputs, "tuple"), lambda _: is_left_to_torch)


def places(joins: Joins) -> list[str]:
    return [str(part).partition("[")[2][:-1] for part in joins.parts.values()]


@pytest.mark.parametrize(("axis", "shape", "found"), [
    (0, (40, 20), ["0:20, 0:20", "20:40, 0:20"]),
    (1, (20, 40), ["0:20, 0:20", "0:20, 20:40"]),
    (-2, (40, 20), ["0:20, 0:20", "20:40, 0:20"]),
    (-1, (20, 40), ["0:20, 0:20", "0:20, 20:40"]),
])  # fmt: skip
def test_rows_and_columns(axis: int, shape: tuple[int, int], found: list[str]) -> None:
    b = Sketch()
    whole = b.joined(axis, shape, b.product(), b.product())
    joins = b.joins(whole)
    assert places(joins) == found
    assert (joins.done, joins.padded) == ({whole}, set())
    assert not b.joins(whole, is_left_to_torch=False).parts, "a kernel of our own has other ways"


@pytest.mark.parametrize("value", [(), (0.0,)])
def test_zeros_beside_them(value: tuple[float, ...]) -> None:
    b = Sketch()
    padded = b.padded(b.product(), 5, 3, *value), b.padded(b.product(), 8, 0, *value)
    whole = b.joined(0, (40, 28), *padded)
    joins = b.joins(whole)
    assert places(joins) == ["0:20, 5:25", "20:40, 8:28"]
    assert (joins.done, joins.padded) == ({whole, *padded}, {whole})


def test_what_stays_a_copy() -> None:
    b = Sketch()
    product = b.product()
    whole = b.joined(0, (40, 20), product, b.product())
    assert not b.joins(whole, product).parts, "one of them is given"
    b = Sketch()
    product = b.product()
    assert not b.joins(b.joined(0, (40, 20), product, product)).parts, "the same twice"
    b = Sketch()
    assert not b.joins(b.joined(0, (40, 20), b.product(), "x")).parts, "something else among them"
    b = Sketch()
    parts = b.padded(b.product(), 5, 3, 2.0), b.padded(b.product(), 8, 0)
    assert not b.joins(b.joined(0, (40, 28), *parts)).parts, "numbers beside it that are not zero"
    b = Sketch()
    parts = b.padded(b.product(), -5, 3), b.padded(b.product(), -2, 0)
    assert not b.joins(b.joined(0, (40, 18), *parts)).parts, "a part of it is cut off"


def test_gradients_of_other_shapes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch writes into a part nobody may want gradients; the module's own forward keeps its own."""
    monkeypatch.setattr(triangles, "BLOCK", 4)
    (tmp_path / "problem.py").write_text(PROBLEM)
    instance = instantiate(problems.load(tmp_path / "problem.py"))
    graph, _ = simplify(trace(instance))
    source = write(instance.problem, graph, Cpp()).source
    assert source.count(", out=") == 3
    program: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, "program.py", "exec"), program)
    model, candidate = instance.make_model(), program["ModelNew"]()
    candidate.load_state_dict(model.state_dict())
    torch.testing.assert_close(candidate(torch.eye(12)), model(torch.eye(12)).detach())
    assert candidate(torch.eye(12)[:, :5]).requires_grad
