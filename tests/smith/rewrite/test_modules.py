"""From a module as people write it to a program without needless work: the right rules, the right numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from kforge import problems
from kforge.inline import configuration
from kforge.problems.instance import instantiate
from kforge.problems.tensors import tensors_in
from kforge.smith.frontend.trace import trace
from kforge.smith.languages.cpp import Cpp
from kforge.smith.program import write
from kforge.smith.rewrite import ALGEBRAIC, RULES, simplify

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("two_threads")

PROBLEM = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, {names}):
        {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

CASES = {
    "sum of a layer's outputs": (
        "self.layer = nn.Linear(33, 17)", "x", "return self.layer(x).sum(dim=1, keepdim=True)", "torch.randn(40, 33)",
        {"sum of features"},
    ),
    "mean of a scaled layer": (
        "self.layer = nn.Linear(33, 17)", "x", "return (self.layer(x) / 2 * 1.5).mean(-1)", "torch.randn(40, 33)",
        {"chain of scalars", "sum of a sum or multiple", "sum of features"},
    ),
    "mean of a layer over a batch": (
        "self.layer = nn.Linear(33, 17)", "x", "return self.layer(x).mean(0)", "torch.randn(40, 33)", {"sum of rows"},
    ),
    "diagonal matrix": (
        "pass", "v, b", "return torch.diag(v) @ b", "torch.randn(40), torch.randn(40, 17)", {"diagonal factor"},
    ),
    "mean over space of a 1x1 convolution": (
        "self.conv = nn.Conv2d(5, 8, 1)", "x", "return self.conv(x).mean(dim=(2, 3))", "torch.randn(3, 5, 9, 7)",
        {"sum of rows"},
    ),
    "pooled 1x1 convolution": (
        "self.conv = nn.Conv2d(5, 8, 1)", "x", "return F.avg_pool2d(self.conv(x), 2)", "torch.randn(3, 5, 9, 8)",
        {"pooling before a convolution"},
    ),
    "pooled convolution": (
        "self.conv = nn.Conv2d(5, 8, 3, padding=1)\n        self.pool = nn.AdaptiveAvgPool2d(1)", "x",
        "return torch.tanh(self.pool(self.conv(x)).flatten(1))", "torch.randn(3, 5, 9, 7)",
        {"global pooling", "sum of places"},
    ),
    "pooled transposed convolution": (
        "self.up = nn.ConvTranspose2d(5, 8, 3, stride=2, padding=1, output_padding=1)", "x",
        "return self.up(x).mul(0.5).mean((2, 3), keepdim=True).mean((2, 3), keepdim=True)", "torch.randn(3, 5, 9, 7)",
        {"sum of places"},
    ),
    "convolution and batch norm": (
        "self.conv = nn.Conv2d(5, 8, 3)\n        self.norm = nn.BatchNorm2d(8).eval()", "x",
        "return self.norm(self.conv(x))", "torch.randn(4, 5, 19, 17)", {"scale into weights"},
    ),
    "matmul chain": (
        "pass", "a, b, c", "return a @ b @ c", "torch.randn(50, 40), torch.randn(40, 60), torch.randn(60, 2)",
        {"order of a chain"},
    ),
    "trace of a product": (
        "pass", "a, b", "return torch.trace(a @ b)", "torch.randn(50, 40), torch.randn(40, 50)",
        {"diagonal of a product"},
    ),
    "shifted softmax": (
        "pass", "x", "x = x - x.mean(dim=-1, keepdim=True) + 3.0\n        return F.softmax(x, dim=-1)",
        "torch.randn(40, 33)", {"shift before a softmax"},
    ),
    "expected positions": (
        "self.register_buffer('axis', torch.linspace(-1.0, 1.0, 40))", "x",
        "chance = x.flatten(-2).softmax(-1).view_as(x)\n        "
        "across, down = (chance.sum(-2) * self.axis).sum(-1), (chance.sum(-1) * self.axis).sum(-1)\n        "
        "return torch.stack((across, down), dim=-1)",
        "torch.randn(3, 5, 40, 40)", {"sum of weighted sums", "softmax that is summed", "reshape after a join"},
    ),
    "means of means": (
        "pass", "x", "return x.mean(1).mean(1), x.mean(2).amax(1)", "torch.randn(70, 6, 33)", {"sum of weighted sums"},
    ),
    "dead branch and the same twice": (
        "self.layer = nn.Linear(33, 17)", "x",
        "unused = self.layer(x).exp()\n        return torch.sigmoid(x) * torch.sigmoid(x) + F.relu(F.relu(x))",
        "torch.randn(40, 33)", {"common subexpressions", "operation without effect"},
    ),
    "scalars": (
        "pass", "x", "return ((x * 2.0 + 1.0) / 4.0 - 0.25) * 3.0", "torch.randn(40, 33)", {"chain of scalars"},
    ),
    "lower triangle": (
        "pass", "a, b", "return torch.tril(a @ b) + torch.tril(a) @ b + torch.triu(a) @ torch.triu(b)",
        "torch.randn(1600, 1600), torch.randn(1600, 1600)", {"triangle of a product", "triangular factor"},
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=tmp_path / "builds"))


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_of_a_rewritten_graph_is_right(case: str, tmp_path: Path) -> None:
    layers, names, body, inputs, expected = CASES[case]
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM.format(layers=layers, names=names, body=body, inputs=inputs))
    problem = problems.load(path)
    instance = instantiate(problem)
    graph, applied = simplify(trace(instance))
    assert expected <= set(applied)
    source = write(problem, graph, Cpp()).source
    written: dict[str, object] = {"__name__": "candidate"}
    exec(compile(source, "candidate.py", "exec"), written)
    model = instance.make_model()
    program = written["ModelNew"]()  # type: ignore[operator]
    program.load_state_dict(model.state_dict())
    given = instance.inputs(0)
    with torch.no_grad():
        got, own = program(*given), model(*given)
        truth = model.double()(*(each.double() for each in given))
    for ours, theirs, exact in zip(tensors_in(got), tensors_in(own), tensors_in(truth), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        error = float((ours.double() - exact).abs().max() / exact.pow(2).mean().sqrt())
        assert error < 1e-5, source


def test_every_rule_says_what_it_is() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert all(rule.when and rule.saves and "\n" not in rule.when + rule.saves for rule in RULES)
    assert {"sum of features", "order of a chain"} <= ALGEBRAIC
    assert not {"dead work", "neutral operand"} & ALGEBRAIC
