"""All rules together on random graphs: whatever they make of one, it means the same."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder, Graph, Ref, broadcast
from kforge.smith.rewrite import RULES, simplify

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.smith.ir.graph import Shape

SIZES = st.integers(1, 7)
NUMBERS = st.sampled_from([0, 1, -1, 0.0, 1.0, 2.0, -0.5, 3, 1e-3, 100.0])
SAFE = ["neg", "abs", "tanh", "sigmoid", "erf"]
"""Functions that never leave the range of numbers, however many follow each other."""


class Growing:
    """A graph to which steps are added, each reading any node before it."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.b = Builder()
        for place in range(draw(st.integers(1, 2))):
            self.b.input(f"x{place}", place, tuple(draw(st.lists(SIZES, max_size=4))), "float32")
        self.ends: list[str] = list(self.b.nodes)

    def any(self, rank: int = 0) -> str | None:
        fitting = [name for name in self.ends if len(self.b.shape(name)) >= rank]
        # the last one often, so that steps make chains
        return self.draw(st.sampled_from([*fitting, *fitting[-1:] * 3 * len(fitting)])) if fitting else None

    def parameter(self, shape: Shape) -> str:
        name = f"p{len(self.b.nodes)}"
        return self.b.parameter(name, name, shape, "float32")

    def step(self) -> None:
        often = [self.scalar, self.reduce, self.layer, self.matmul] * 2
        seldom = [self.one, self.two, self.bound, self.reshape, self.permute, self.linear, self.diagonal, self.softmax]
        step = self.draw(st.sampled_from([*often, *seldom]))
        made = step()
        if made is not None:
            self.ends.append(made)

    def one(self) -> str:
        return self.b.map(self.draw(st.sampled_from(SAFE)), self.any())

    def scalar(self) -> str:
        function, number = self.draw(st.sampled_from(["add", "sub", "mul", "div"])), self.draw(NUMBERS)
        if function == "div":
            return self.b.map("div", self.any(), number or 2.0)
        operands = [self.any(), number]
        return self.b.map(function, *(operands if self.draw(st.booleans()) else operands[::-1]))

    def two(self) -> str | None:
        one, other = self.any(), self.any()
        shape = self.b.shape(one)
        if self.draw(st.booleans()):  # a parameter that is broadcast
            kept = [size if self.draw(st.booleans()) else 1 for size in shape]
            other = self.parameter(tuple(kept[self.draw(st.integers(0, len(shape))) :]))
        try:
            broadcast(shape, self.b.shape(other))
        except ValueError:
            return None
        return self.b.map(self.draw(st.sampled_from(["add", "sub", "mul", "maximum", "minimum"])), one, other)

    def bound(self) -> str:
        return self.b.map(self.draw(st.sampled_from(["maximum", "minimum"])), self.any(), self.draw(NUMBERS))

    def reduce(self) -> str | None:
        x = self.any(1)
        if x is None:
            return None
        axes = self.draw(st.sets(st.integers(0, len(self.b.shape(x)) - 1), min_size=1))
        return self.b.reduce(self.draw(st.sampled_from(["sum", "sum", "sum", "max", "min"])), x, axes)

    def reshape(self) -> str:
        """Two neighbours become one, one goes, or one comes."""
        x = self.any()
        shape = self.b.shape(x)
        place = self.draw(st.integers(0, len(shape)))
        merged = (*shape[:place], math.prod(shape[place : place + 2]), *shape[place + 2 :])
        split = (*shape[:place], 1, *shape[place:])
        squeezed = tuple(size for size in shape if size != 1)
        return self.b.reshape(x, self.draw(st.sampled_from([merged, split, squeezed])))

    def permute(self) -> str:
        x = self.any()
        return self.b.permute(x, self.draw(st.permutations(range(len(self.b.shape(x))))))

    def linear(self) -> str | None:
        x = self.any(1)
        if x is None:
            return None
        *rows, inner = self.b.shape(x)
        features = self.draw(SIZES)
        arguments = [Ref(x), Ref(self.parameter((features, inner)))]
        if self.draw(st.booleans()):
            arguments.append(Ref(self.parameter((features,))))
        return self.b.call("linear", "aten.linear.default", (arguments, {}), (*rows, features), "float32")

    def layer(self) -> str | None:
        """What a sum has to come through: a linear layer, some of what people write after it, the sum."""
        made = self.linear()
        if made is None:
            return None
        for step in self.draw(
            st.lists(st.sampled_from([self.scalar, self.two, self.permute, self.reshape]), max_size=3)
        ):
            self.ends.append(made)
            made = step() or made
        axes = self.draw(st.sets(st.integers(0, max(0, len(self.b.shape(made)) - 1)), min_size=1))
        return self.b.reduce("sum", made, axes)

    def matmul(self) -> str | None:
        x = self.any(2)
        if x is None:
            return None
        shape, features = self.b.shape(x), self.draw(SIZES)
        batch = shape[:-2][self.draw(st.integers(0, len(shape) - 2)) :]
        weight = self.parameter((*batch, shape[-1], features))
        arguments = ([Ref(x), Ref(weight)], {})
        return self.b.call("matmul", "aten.matmul.default", arguments, (*shape[:-1], features), "float32")

    def diagonal(self) -> str | None:
        x = self.any(2)
        if x is None:
            return None
        size = self.b.shape(x)[-2]
        vector = ([Ref(self.parameter((size,)))], {})
        factor = self.b.call("diag", "aten.diag.default", vector, (size, size), "float32")
        arguments = ([Ref(factor), Ref(x)], {})
        return self.b.call("matmul", "aten.matmul.default", arguments, self.b.shape(x), "float32")

    def softmax(self) -> str | None:
        x = self.any(1)
        if x is None:
            return None
        axes = [self.draw(st.integers(0, len(self.b.shape(x)) - 1))]
        apart = self.b.map("sub", x, self.b.reduce("max", x, axes))
        grown = self.b.map("exp", apart)
        total = self.b.reduce("sum", grown, axes)
        if self.draw(st.booleans()):
            return self.b.map("div", grown, total)
        return self.b.map("sub", apart, self.b.map("log", total))


@st.composite
def graphs(draw: Callable[..., Any]) -> Graph:
    growing = Growing(draw)
    for _ in range(draw(st.integers(3, 10))):
        growing.step()
    outputs = (growing.ends[-1], *draw(st.lists(st.sampled_from(growing.ends), max_size=1)))
    return Graph(growing.b.nodes, outputs, "tuple")


@settings(max_examples=2 * settings.default.max_examples)
@given(graph=graphs(), seed=st.integers(0, 1000))
def test_all_rules_keep_the_meaning(graph: Graph, seed: int, proof: Any) -> None:
    after, applied = simplify(graph)
    proof.same_meaning(graph, after, seed)
    assert set(applied) <= {rule.name for rule in RULES}
    assert simplify(after) == (after, ())
