"""Programs of random graphs: whatever the regions, sweeps and strides come out as, the kernels compute what torch does.

Many graphs are written into one library, because a compiler takes longer to start than to compile them.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge import inline
from kforge.inline import configuration
from kforge.records import Problem
from kforge.smith.ir.graph import Builder, Graph, ScanMode
from kforge.smith.ir.interpret import evaluate
from kforge.smith.languages.cpp import Cpp
from kforge.smith.languages.cpp.plan import MOVES, CppPlan
from kforge.smith.program import _ProgramWriter
from kforge.smith.rewrite import simplify

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.smith.fusion.regions import Region
    from kforge.smith.languages import Context, WrittenKernel

pytestmark = pytest.mark.usefixtures("two_threads")

AT_ONCE = 25
BATCHES = [0, *(pytest.param(batch, marks=pytest.mark.volume) for batch in range(1, 20))]
"""One in `make test`, 500 graphs in `make test-all`."""
PROBLEM = Problem(name="random", source="import torch\nclass Model(torch.nn.Module): pass\n")

UNARY = ("neg", "abs", "tanh", "sigmoid", "exp", "erf", "log1p", "expm1", "sqrt")
BINARY = ("add", "sub", "mul", "maximum", "minimum")


class Draw:
    """One random graph."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.builder = Builder()
        self.shape = tuple(self.chance.choice((1, 2, 3, 5, 8, 64, 67)) for _ in range(self.chance.randint(0, 4)))
        self.names = [self.builder.input("x", 0, self.shape, "float32")]
        if self.chance.random() < 0.6:
            self.names.append(self.builder.input("y", 1, self._broadcast(self.shape), "float32"))

    def graph(self) -> Graph:
        for _ in range(self.chance.randint(2, 10)):
            self.names.append(self._step())
        outputs = self.chance.sample(self.names, min(len(self.names), self.chance.randint(1, 3)))
        return Graph(self.builder.nodes, tuple(dict.fromkeys([*outputs, self.names[-1]])), "list").live()

    def _broadcast(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        kept = shape[self.chance.randint(0, len(shape)) :] if self.chance.random() < 0.3 else shape
        return tuple(1 if self.chance.random() < 0.3 else size for size in kept)

    def _step(self) -> str:
        b, x = self.builder, self.chance.choice(self.names)
        shape = b.shape(x)
        match self.chance.randint(0, 12):
            case 0 | 1 | 2:
                return self._unary(x)
            case 3 | 4 | 5:
                return self._binary(x)
            case 6 | 7 if shape:
                axes = self.chance.sample(range(len(shape)), self.chance.randint(1, len(shape)))
                return b.reduce(self.chance.choice(("sum", "max", "min")), x, axes)
            case 8 if len(shape) > 1:
                return b.permute(x, self.chance.sample(range(len(shape)), len(shape)))
            case 9 if shape:
                cut = self.chance.randrange(len(shape))
                merged = (*shape[:cut], *((shape[cut] * shape[cut + 1],) if cut + 1 < len(shape) else (shape[cut], 1)))
                return b.reshape(x, (*merged, *shape[cut + 2 :]))
            case 10 if shape:
                return self._slice(x)
            case 11 if shape:
                return self._join(x)
            case 12 if shape and max(shape) > 1 and b.dtype(x) == "float32":
                return self._scan(x)
        return self._unary(x)

    def _slice(self, x: str) -> str:
        axis = self.chance.randrange(len(self.builder.shape(x)))
        indices = range(self.builder.shape(x)[axis])[self.chance.randint(0, 3) :: self.chance.randint(1, 3)]
        indices = indices[::-1] if self.chance.random() < 0.4 else indices
        return self.builder.slice(x, axis, indices.start, indices.step, len(indices)) if indices else x

    def _join(self, x: str) -> str:
        """With itself, a part of itself or whatever else has its shape."""
        b, shape = self.builder, self.builder.shape(x)
        alike = [name for name in self.names if b.shape(name) == shape and b.dtype(name) == b.dtype(x)]
        if self.chance.random() < 0.5:
            return b.join("stack", [x, *self.chance.sample(alike, 1)], self.chance.randint(0, len(shape)))
        axis = self.chance.randrange(len(shape))
        part = b.slice(x, axis, 0, 1, max(1, shape[axis] - 1)) if shape[axis] else x
        return b.join("cat", [part, *self.chance.sample(alike, 1)], axis)

    def _scan(self, x: str) -> str:
        axis = self.chance.choice([axis for axis, size in enumerate(self.builder.shape(x)) if size > 1])
        mode = ScanMode(self.chance.random() < 0.3, self.chance.random() < 0.3)
        small = self.builder.map("tanh", x)
        scan = self.builder.scan(self.chance.choice(("sum", "max", "min")), small, axis, mode)
        # infinite where nothing comes before a maximum
        return self.builder.map("maximum", self.builder.map("minimum", scan, 40.0), -40.0)

    def _unary(self, x: str) -> str:
        b, function = self.builder, self.chance.choice(UNARY)
        # kept small: what grows without bound would drown every mistake in its own rounding
        small = b.map("tanh", x)
        return b.map(function, b.map("abs", small) if function in ("sqrt", "log1p") else small)

    def _binary(self, x: str) -> str:
        b = self.builder
        if self.chance.random() < 0.3:
            return b.map(self.chance.choice(BINARY), x, round(self.chance.uniform(-2, 2), 2))
        for y in self.chance.sample(self.names, len(self.names)):
            try:
                if self.chance.random() < 0.15:
                    return b.map("where", b.map("gt", x, y, dtype="bool"), x, y)
                return b.map(self.chance.choice(BINARY), x, y)
            except ValueError:
                continue
        return self._unary(x)


class Numbered(Cpp):
    """Kernels whose names are no other graph's."""

    def __init__(self, number: int) -> None:
        self.number = number

    def region(self, name: str, region: Region, context: Context) -> WrittenKernel:
        return replace(super().region(f"g{self.number}_{name}", region, context), name=name)


def compiled(text: str) -> Any:
    scope: dict[str, Any] = {"inline": inline}
    exec(text, scope)
    return scope["library"]


def run(writer: _ProgramWriter, library: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    place = {node.name: inputs[node.arguments] for node in writer.graph if node.kind == "input"}
    scope: dict[str, Any] = {**place, "torch": torch, "library": library}
    exec("\n".join(writer.steps), scope)
    return [eval(writer._result(name), scope) for name in writer.graph.outputs]


@pytest.mark.parametrize("batch", BATCHES)
def test_random_graphs_are_computed_as_torch_does(batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=tmp_path))
    plans = [CppPlan(), CppPlan(lanes=16), *(move.applied(CppPlan()) for move in MOVES)]
    programs: list[tuple[int, Graph, _ProgramWriter]] = []
    for number in range(batch * AT_ONCE, (batch + 1) * AT_ONCE):
        graph = Draw(number).graph()
        plan = plans[number % len(plans)]
        for kind, one in enumerate((graph, simplify(graph, Cpp.rules)[0])):
            writer = _ProgramWriter(PROBLEM, one, Numbered(2 * number + kind), plan)
            writer._order()
            programs.append((number, graph, writer))
    kernels = [kernel for _, _, writer in programs for kernel in writer.kernels]
    library = compiled(Cpp().library(kernels))
    for number, graph, writer in programs:
        generator = torch.Generator().manual_seed(number)
        given = sorted((node for node in graph if node.kind == "input"), key=lambda node: node.arguments)
        inputs = [torch.randn(node.shape, generator=generator) for node in given]
        exact = evaluate(graph, [each.double() for each in inputs], {})
        for ours, truth in zip(run(writer, library, inputs), exact, strict=True):
            assert ours.shape == truth.shape, f"graph {number}"
            scale = max(float(truth.double().pow(2).mean().sqrt()), 1e-3) if truth.numel() else 1.0
            error = float((ours.double() - truth.double()).abs().max()) / scale
            assert error < 1e-4, f"graph {number}: {error}\n" + "\n".join(map(str, graph))
