"""Triton's kernels: what their texts look like, products of halves, and windows, run by its interpreter."""

from __future__ import annotations

import ast
import itertools
import math
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.smith.nan_rows import rows_with_nan
from torch.nn import functional as F

from kforge.records import Problem
from kforge.smith.ir.functions import REDUCTIONS
from kforge.smith.ir.graph import Builder, Graph, Ref, ScanMode, output
from kforge.smith.ir.interpret import evaluate
from kforge.smith.languages.triton import Triton, statements
from kforge.smith.languages.triton.plan import MOVES, TritonPlan
from kforge.smith.languages.triton.pooling import strips
from kforge.smith.languages.triton.product import split_rows
from kforge.smith.languages.triton.reduction import partition as cuts
from kforge.smith.program import write
from kforge.smith.rewrite import simplify

if TYPE_CHECKING:
    from collections.abc import Callable

    Then = Callable[[Builder, str], str]

PROBLEM = Problem(name="given", source="import torch\nclass Model(torch.nn.Module): pass\n")
ALWAYS = TritonPlan(split=2)
TWO = f"[{output(0)}, {output(1)}]"
"""The structure of two outputs."""
VOLUME = pytest.mark.volume


def called(
    operator: str, shape: tuple[int, ...], *inputs: Any, then: Callable[[Builder, str], str] | None = None
) -> Graph:
    """A graph of one call of torch; tensors among the arguments are given by their shapes."""
    b, arguments = Builder(), []
    for each in inputs:
        is_tensor = isinstance(each, tuple)
        place = sum(isinstance(one, Ref) for one in arguments)
        arguments.append(Ref(b.input("xyzw"[place], place, each, "float32")) if is_tensor else each)
    name = b.call(operator.split(".")[1], operator, (arguments, {}), shape, "float32")
    return Graph(b.nodes, (then(b, name) if then else name,))


def numbers(graph: Graph, seed: int = 0) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(node.shape, generator=draw) for node in graph if node.kind == "input"]


def gelu(b: Builder, x: str) -> str:
    grown = b.map("add", b.map("erf", b.map("mul", x, 0.5**0.5)), 1.0)
    return b.map("mul", b.map("mul", x, 0.5), grown)


def in_a_join(b: Builder, x: str) -> str:
    """Behind a part of itself and turned around, so that it is written from an element on, backwards."""
    small = b.map("tanh", x)
    turned = b.slice(small, 1, b.shape(x)[1] - 1, -1, b.shape(x)[1])
    return b.join("cat", [b.map("mul", x, 0.5), turned], 1)


def sliced(graph: Graph) -> Graph:
    """The same call on parts of larger inputs, the first of which are turned around."""
    b, renamed = Builder(), {}
    for node in graph:
        if node.kind == "input":
            *around, last = node.shape
            whole = b.input(node.name, node.arguments, (*around, 2 * last + 3), "float32")
            start, step = (2 * last + 1, -2) if node.arguments == 0 else (3, 1)
            renamed[node.name] = b.slice(whole, len(around), start, step, last)
        else:
            arguments = [Ref(renamed[each.name]) for each in node.arguments[0]]
            renamed[node.name] = b.call(node.name, node.function, (arguments, {}), node.shape, "float32")
    return Graph(b.nodes, tuple(renamed[name] for name in graph.outputs))


def transposed(graph: Graph, *names: str) -> Graph:
    """The same call on inputs that are given the other way round."""
    b, renamed = Builder(), {}
    for node in graph:
        if node.kind == "input":
            if node.name not in names:
                renamed[node.name] = b.input(node.name, node.arguments, node.shape, "float32")
                continue
            *around, down, across = node.shape
            turned = b.input(node.name, node.arguments, (*around, across, down), "float32")
            renamed[node.name] = b.permute(turned, (*range(len(around)), len(around) + 1, len(around)))
        else:
            positional, _ = node.arguments
            arguments = [Ref(renamed[each.name]) if isinstance(each, Ref) else each for each in positional]
            renamed[node.name] = b.call(node.name, node.function, (arguments, {}), node.shape, "float32")
    return Graph(b.nodes, tuple(renamed[name] for name in graph.outputs))


SQUARE = called("aten.mm.default", (70, 130), (70, 100), (100, 130))
PRODUCTS = {
    "odd sizes": SQUARE,
    "whole tiles": called("aten.mm.default", (128, 128), (128, 128), (128, 128)),
    "left transposed": transposed(SQUARE, "x"),
    "right transposed": transposed(SQUARE, "y"),
    "both transposed": transposed(SQUARE, "x", "y"),
    "long rows": called("aten.mm.default", (3, 5), (3, 4500), (4500, 5)),
    "batched": called("aten.bmm.default", (3, 40, 30), (3, 40, 80), (3, 80, 30)),
    "batched, transposed": transposed(called("aten.bmm.default", (3, 40, 30), (3, 40, 80), (3, 80, 30)), "y"),
    "linear": called("aten.linear.default", (5, 14, 33), (5, 14, 80), (33, 80), (33,)),
    "a bias first": called("aten.addmm.default", (70, 33), (33,), (70, 80), (80, 33)),
    "with a tail": called("aten.linear.default", (70, 33), (70, 80), (33, 80), (33,), then=gelu),
    "parts of larger ones": sliced(SQUARE),
    "batches of parts": sliced(called("aten.bmm.default", (3, 40, 30), (3, 40, 80), (3, 80, 30))),
    "one row with a tail": called("aten.mm.default", (1, 70), (1, 80), (80, 70), then=gelu),
    "one column with a tail": called("aten.mm.default", (70, 1), (70, 80), (80, 1), then=gelu),
    "one number with a tail": called("aten.mm.default", (1, 1), (1, 80), (80, 1), then=lambda b, x: b.map("neg", x)),
    "with a tail into a join": called("aten.mm.default", (70, 33), (70, 80), (80, 33), then=in_a_join),
    "with a tail of another shape": called(
        "aten.mm.default", (64, 64), (64, 80), (80, 64), then=lambda b, x: b.map("neg", b.reshape(x, (32, 128)))
    ),
    "with a tail that is turned": called(
        "aten.mm.default", (64, 32), (64, 80), (80, 32), then=lambda b, x: b.map("neg", b.permute(x, (1, 0)))
    ),
}
VECTORS = {
    "a matrix and a vector": called("aten.matmul.default", (70,), (70, 300), (300,), then=gelu),
    "matrices and a vector": called("aten.matmul.default", (3, 70), (3, 70, 300), (300,)),
    "one feature": called("aten.linear.default", (5, 14, 1), (5, 14, 64), (1, 64), (1,)),
    "a long row": called("aten.linear.default", (1, 33), (1, 9000), (33, 9000), (33,), then=gelu),
    "a bias first, one row": transposed(called("aten.addmm.default", (1, 33), (33,), (1, 64), (64, 33)), "z"),
    "a batch of columns": called("aten.bmm.default", (3, 40, 1), (3, 40, 20), (3, 20, 1)),
}
TINY = {
    "tiny ones": called("aten.bmm.default", (70, 8, 8), (70, 8, 8), (70, 8, 8)),
    "tiny ones of odd sizes": called("aten.matmul.default", (9, 11, 3, 7), (9, 11, 3, 5), (9, 11, 5, 7), then=gelu),
    "tiny ones, transposed": transposed(called("aten.bmm.default", (300, 2, 6), (300, 2, 4), (300, 4, 6)), "x", "y"),
}
WINDOWS = {
    "depthwise": called(
        "aten.conv2d.default", (2, 6, 9, 8), (2, 6, 9, 8), (6, 1, 3, 3), (6,), [1, 1], [1, 1], [1, 1], 6
    ),
    "depthwise, apart": called(
        "aten.conv2d.default", (2, 6, 4, 3), (2, 6, 9, 8), (6, 1, 3, 3), None, [2, 2], [0, 0], [1, 1], 6
    ),
    "depthwise with holes": called(
        "aten.conv1d.default", (2, 6, 190), (2, 6, 190), (6, 1, 3), (6,), [1], [2], [2], 6, then=gelu
    ),
    "depthwise, wide": called(
        "aten.conv2d.default", (2, 6, 13, 10), (2, 6, 25, 20), (6, 1, 7, 7), (6,), [2, 2], [3, 3], [1, 1], 6, then=gelu
    ),
    "depthwise, wider than registers": called(
        "aten.conv2d.default", (1, 2, 5, 12), (1, 2, 5, 12), (2, 1, 9, 9), (2,), [1, 1], [4, 4], [1, 1], 2
    ),
    "depthwise in volumes": called(
        "aten.conv3d.default", (1, 3, 6, 5, 4), (1, 3, 6, 5, 4), (3, 1, 3, 3, 3), None, [1] * 3, [1] * 3, [1] * 3, 3
    ),
}  # fmt: skip


def pooled(kind: str, sizes: tuple[int, ...], window: Any, stride: Any, padding: int = 0, *rest: Any) -> Graph:
    """A pooling of five planes, and a map after it."""
    rank = len(sizes)
    shape = getattr(F, f"{kind}_pool{rank}d")(torch.zeros(5, *sizes), window, stride, padding, *rest).shape
    given_ = [(5, *sizes), [window] * rank, [stride] * rank, [padding] * rank, *rest]
    return called(f"aten.{kind}_pool{rank}d.default", tuple(shape), *given_, then=lambda b, x: b.map("mul", x, 3.0))


POOLS = {
    f"{kind} of {sizes}, {window} wide, {stride} apart, padded by {padding}{', with' if rest else ''}": pooled(
        kind, sizes, window, stride, padding, *rest
    )
    for kind, sizes, window, stride, padding, *rest in (
        ("max", (40, 24), 3, 2, 1), ("max", (41, 23), 3, 2, 1), ("max", (37, 20), 2, 2, 0), ("max", (50, 9), 3, 1, 1),
        ("max", (33, 16), 2, 4, 0), ("max", (40, 12), 3, 1, 1, 2), ("max", (2048,), 5, 2, 2), ("max", (70, 3), 3, 1, 1),
        ("max", (11, 12, 16), 3, 2, 1), ("max", (24, 22), 20, 1, 0), ("avg", (2000,), 8, 4, 0),
        ("avg", (2003,), 8, 4, 0),
        ("avg", (40, 24), 5, 1, 2), ("avg", (39, 24), 4, 2, 1, False, False), ("avg", (9, 8, 12), 3, 2, 1),
        ("avg", (9, 8, 12), 3, 2, 1, False, False), ("avg", (34, 16), 7, 4, 3), ("avg", (41,), 3, 2, 1, False, False),
    )
}  # fmt: skip
CONVOLUTIONS = {
    "convolution": called("aten.conv2d.default", (2, 5, 9, 8), (2, 16, 9, 8), (5, 16, 3, 3), (5,), [1, 1], [1, 1]),
    "apart, with holes": called(
        "aten.conv2d.default", (2, 70, 4, 3), (2, 32, 9, 8), (70, 32, 3, 2), None, [2, 2], [1, 0], [2, 2], then=gelu
    ),
    "of one channel": called("aten.conv2d.default", (1, 1, 9, 8), (1, 16, 9, 8), (1, 16, 1, 1), (1,), then=gelu),
    "of a signal": called("aten.conv1d.default", (3, 20, 40), (3, 48, 40), (20, 48, 1), (20,)),
    "in groups": called(
        "aten.conv2d.default", (2, 70, 9, 8), (2, 32, 9, 8), (70, 16, 3, 3), (70,), [1, 1], [1, 1], [1, 1], 2, then=gelu
    ),
    "transposed": called(
        "aten.conv_transpose2d.input", (2, 5, 18, 16), (2, 16, 9, 8), (16, 5, 4, 4), (5,), [2, 2], [1, 1], then=gelu
    ),
    "transposed, odd": called(
        "aten.conv_transpose3d.input", (1, 3, 8, 12, 5), (1, 16, 4, 4, 5), (16, 3, 3, 2, 1), None, [2, 3, 1], [1, 0, 0],
        [1, 1, 0],
    ),
    "transposed, with holes": called(
        "aten.conv_transpose1d.default", (3, 8, 91), (3, 32, 40), (32, 4, 5), (8,), [2], [0], [0], 2, [3]
    ),
    "transposed, without steps": called(
        "aten.conv_transpose2d.input", (1, 9, 8, 7), (1, 16, 6, 7), (16, 9, 3, 3), (9,), [1, 1], [0, 1]
    ),
    "of a volume": called(
        "aten.conv3d.default", (1, 8, 4, 4, 4), (1, 16, 4, 4, 4), (8, 16, 3, 3, 3), None, [1] * 3, [1] * 3
    ),
}  # fmt: skip


def two_pools(shape: tuple[int, ...], window: int, other_window: int, padding: int = 0) -> Graph:
    b, rank = Builder(), len(shape) - 1
    x = Ref(b.input("x", 0, shape, "float32"))
    names = []
    for kind, wide in (("max", window), ("avg", other_window)):
        pool = getattr(F, f"{kind}_pool{rank}d")
        out = tuple(pool(torch.zeros(shape), wide, window, padding).shape)
        given_ = [x, [wide] * rank, [window] * rank, [padding] * rank]
        names.append(b.call(f"{kind}_pool", f"aten.{kind}_pool{rank}d.default", (given_, {}), out, "float32"))
    return Graph(b.nodes, (b.map("sub", b.map("exp", names[0]), names[1]),))


BOTH = {
    "two pools of an image": two_pools((5, 24, 22), 2, 2),
    "two pools of a signal": two_pools((5, 301), 3, 3),
    "two pools of a volume": two_pools((5, 9, 12, 8), 2, 2),
    "two pools of odd rows": two_pools((3, 37, 23), 4, 4),
}
POOLS |= BOTH
STRIPS = {f"{name}, in strips": graph for name, graph in {**WINDOWS, **POOLS}.items()}
MORE_POOLS = [f"{name}, in strips" for name in list(POOLS)[1::2]]
MORE_CALLS = [
    *MORE_POOLS, "left transposed", "parts of larger ones", "matrices and a vector", "depthwise, wide",
    "depthwise, wider than registers, in strips", "max of (2048,), 5 wide, 2 apart, padded by 2, in strips",
    "max of (11, 12, 16), 3 wide, 2 apart, padded by 1, in strips",
    "avg of (40, 24), 5 wide, 1 apart, padded by 2, in strips",
    "avg of (34, 16), 7 wide, 4 apart, padded by 3, in strips", "attention, with a bias",
]  # fmt: skip
"""In `make test-all` only: `make test` has another one of the same kind, which the interpreter runs sooner."""
SDPA = "aten.scaled_dot_product_attention.default"


def with_shared_keys(queries: int) -> Graph:
    b, shape = Builder(), (2, 3, 70, 24)
    given = [b.input("x", 0, (2, 3, queries, 24), "float32")]
    for place, name in enumerate("yz", 1):
        one = b.input(name, place, (2, 1, 70, 24), "float32")
        given.append(b.call("expand", "aten.expand.default", ([Ref(one), list(shape)], {}), shape, "float32"))
    arguments = ([Ref(each) for each in given], {"scale": 0.3})
    return Graph(b.nodes, (b.call("attention", SDPA, arguments, (2, 3, queries, 24), "float32"),))


ATTENTION = {
    "attention, with shared keys": with_shared_keys(33),
    "attention of one query, with shared keys": with_shared_keys(1),
    "attention, with a bias": called(SDPA, (2, 3, 130, 40), (2, 3, 130, 40), *[(2, 3, 70, 40)] * 2, (1, 3, 130, 70)),
    "attention, with a bias of keys": called(
        SDPA, (2, 3, 9, 40), (2, 3, 9, 40), *[(2, 3, 128, 40)] * 2, (2, 1, 1, 128)
    ),
    "attention": called(SDPA, (2, 3, 130, 40), (2, 3, 130, 40), (2, 3, 70, 40), (2, 3, 70, 40)),
    "attention, whole tiles": called(SDPA, (1, 2, 128, 64), *[(1, 2, 128, 64)] * 3, then=gelu),
    "attention, causal": called(SDPA, (1, 2, 140, 72), *[(1, 2, 140, 72)] * 3, None, 0.0, True),
    "attention, more keys, causal": called(
        SDPA, (1, 2, 20, 16), (1, 2, 20, 16), *[(1, 2, 90, 16)] * 2, None, 0.0, True
    ),
    "attention of one query": called(SDPA, (2, 3, 1, 40), (2, 3, 1, 40), (2, 3, 70, 40), (2, 3, 70, 40), then=gelu),
}
CALLS = {**PRODUCTS, **VECTORS, **TINY, **WINDOWS, **STRIPS, **CONVOLUTIONS}


def program(graph: Graph, plan: TritonPlan = ALWAYS, *, by_rules: bool = False) -> str:
    graph = simplify(graph, Triton.rules)[0] if by_rules else graph
    return write(PROBLEM, graph, Triton(), plan).source


@pytest.fixture(scope="module")
def results(interpret: Any, values_to_test: Callable[[str], set[Any]]) -> dict[str, Any]:
    names = values_to_test("name")
    with pytest.MonkeyPatch.context() as few:
        few.setattr(split_rows, "PROCESSORS", 2)  # fewer pieces: the interpreter has one processor
        programs = {
            name: (program(graph, by_rules=name in VECTORS), {}, [numbers(graph)])
            for name, graph in {**CALLS, **ATTENTION}.items()
            if name in names
        }
    with pytest.MonkeyPatch.context() as small:
        small.setattr(strips, "PROGRAMS", 1)  # as where there is enough to do: strips are long
        programs |= {name: (program(graph), {}, [numbers(graph)]) for name, graph in STRIPS.items() if name in programs}
    programs["not finite"] = (program(SQUARE), {}, [not_finite()])
    programs["scales"] = (program(SQUARE), {}, [scales()])
    got = interpret(programs)
    return {name: (given, got[name]) for name, given in programs.items()}


def not_finite() -> list[torch.Tensor]:
    x, y = numbers(SQUARE)
    x[0], x[3, 0], x[4, 7] = 0.0, float("nan"), float("inf")
    x[5, 8], x[6, 1], x[6, 2] = -float("inf"), float("inf"), -float("inf")
    y[7, 9] = float("inf")
    return [x, y]


def scales() -> list[torch.Tensor]:
    """Rows and columns from next to nothing to next to too large."""
    x, y = numbers(SQUARE)
    x[0], x[1], x[2] = x[0] * 1e-37, x[1] * 1e30, x[2] * 1e37
    y[:, 0], y[:, 1], y[:, 2] = y[:, 0] * 1e30, y[:, 1] * 1e-35, y[:, 2] * 0.0
    return [x, y]


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=VOLUME if name in MORE_CALLS else ()) for name in CALLS])
def test_calls_with_kernels_of_their_own_are_right(name: str, results: dict[str, Any]) -> None:
    graph = CALLS[name]
    (source, _, (inputs,)), got = results[name]
    assert not isinstance(got, str), f"{got}\n{source}"
    assert "@triton.jit" in source
    assert not re.search(r"= (torch|F)\.(?!empty)", source), "the call itself is left to torch"
    (truth,) = evaluate(graph, [each.double() for each in inputs], {})
    error = (got[0].double() - truth).abs().max() / truth.pow(2).mean().sqrt()
    assert error < 3e-6, source


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=VOLUME if name in MORE_CALLS else ()) for name in ATTENTION])
def test_attention_is_as_exact_as_torch(name: str, results: dict[str, Any]) -> None:
    """Shares of a softmax are as wrong as scores are in single precision, whoever computes them."""
    (source, _, (inputs,)), got = results[name]
    assert not isinstance(got, str), f"{got}\n{source}"
    assert "aten.scaled_dot_product_attention" not in source, "the call itself is left to torch"
    (truth,) = evaluate(ATTENTION[name], [each.double() for each in inputs], {})
    (theirs,) = evaluate(ATTENTION[name], inputs, {})
    ours, limit = ((each.double() - truth).norm() / truth.norm() for each in (got[0], theirs))
    assert ours < 1.5 * limit + 1e-7, source


@pytest.mark.slow
def test_more_batches_than_an_axis_has_programs_share_the_first(
    interpret: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = {
        "product": called("aten.bmm.default", (3, 150, 130), (3, 150, 300), (3, 300, 130)),
        "attention": ATTENTION["attention, causal"],
    }
    assert "(4, 3)](" in program(graphs["product"])
    monkeypatch.setattr(statements, "LAST", 1)
    programs = {name: (program(graph), {}, [numbers(graph)]) for name, graph in graphs.items()}
    for name, got in interpret(programs).items():
        source, _, (inputs,) = programs[name]
        assert not isinstance(got, str), f"{got}\n{source}"
        assert "program_id(1)" not in source
        (truth,) = evaluate(graphs[name], [each.double() for each in inputs], {})
        assert (got[0].double() - truth).norm() / truth.norm() < 3e-6, source


@pytest.mark.slow
def test_products_have_the_infinities_that_torch_gives(results: dict[str, Any]) -> None:
    (source, _, (inputs,)), got = results["not finite"]
    assert not isinstance(got, str), f"{got}\n{source}"
    torch.testing.assert_close(got[0], inputs[0] @ inputs[1], equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_products_of_any_scale_are_exact(results: dict[str, Any]) -> None:
    (_, _, ((x, y),)), got = results["scales"]
    truth = x.double() @ y.double()
    size = x.double().norm(dim=1)[:, None] * y.double().norm(dim=0)[None, :]
    representable = (truth.abs() < 3e38) & (size > 1e-30)
    assert bool(((got[0].double() - truth).abs() <= 5e-7 * size)[representable].all())
    assert bool((got[0].isinf() == (truth.abs() > 3.5e38))[(truth.abs() < 3e38) | (truth.abs() > 3.5e38)].all())


def test_a_small_product_stays_the_librarys() -> None:
    assert "torch.mm(" in program(SQUARE, TritonPlan())
    large = called("aten.mm.default", (4096, 4096), (4096, 4096), (4096, 4096))
    assert "torch.mm(" not in program(large, TritonPlan())
    assert "torch.mm(" in program(large, TritonPlan(split=0))


def test_a_vector_across_memory_stays_the_librarys() -> None:
    row = called("aten.mm.default", (1, 70), (1, 64), (64, 70))
    assert "torch.mm(" in program(row, TritonPlan(), by_rules=True)
    across = transposed(called("aten.matmul.default", (70,), (70, 300), (300,)), "x")
    assert "torch.matmul(" in program(across, TritonPlan(), by_rules=True)


@pytest.mark.parametrize("name", VECTORS)
def test_a_product_with_a_vector_is_one_kernel(name: str) -> None:
    source = program(VECTORS[name], TritonPlan(), by_rules=True)
    assert source.count("@triton.jit") == 1, source
    assert "tl.dot" not in source


def test_a_tail_is_in_the_products_kernel_and_nowhere_else() -> None:
    source = program(PRODUCTS["with a tail"])
    assert source.count("@triton.jit") == 3, "two that split, and one that multiplies"
    assert source.count("tl.erf(") == 1


def test_two_pools_of_the_same_windows_are_one_kernel() -> None:
    for graph in BOTH.values():
        assert len(re.findall(r"own_\w+\[", program(graph))) == 1
    for windows in ((2, 1), (2, 2, 1)):  # of another size, and padded, where an average reads zeros
        assert len(re.findall(r"own_\w+\[", program(two_pools((5, 24, 22), *windows)))) == 2


def test_a_tail_that_is_turned_is_a_kernel_of_its_own() -> None:
    assert program(PRODUCTS["with a tail that is turned"]).count("@triton.jit") == 4


@pytest.mark.parametrize("plan", [TritonPlan(), *(move.applied(TritonPlan()) for move in MOVES)])
def test_every_text_is_python_and_masks_only_what_does_not_end_with_its_blocks(plan: TritonPlan) -> None:
    for shape in ((64, 4096), (65, 4097), (3, 100_000), (100_000, 48), (7, 5, 300)):
        b = Builder()
        x = b.input("x", 0, shape, "float32")
        for axis in range(len(shape)):
            apart = b.map("sub", x, b.reduce("max", x, (axis,)))
            total = b.reduce("sum", b.map("exp", apart), (axis,))
            source = program(Graph(b.nodes, (b.map("sub", apart, b.map("log", total)),)).live(), plan)
            ast.parse(source)
            if all(size & (size - 1) == 0 for size in shape):
                assert "mask=" not in source


def test_what_lies_far_away_is_counted_in_64_bits() -> None:
    for rows, wide in ((1 << 10, False), (1 << 16, True)):
        b = Builder()
        x = b.input("x", 0, (rows, 1 << 16), "float32")
        assert (".to(tl.int64)" in program(Graph(b.nodes, (b.map("neg", x),)))) is wide
        assert (".to(tl.int64)" in program(Graph(b.nodes, (b.reduce("sum", x, (1,)),)).live())) is wide


@pytest.mark.slow
@pytest.mark.parametrize("plan", [TritonPlan(tile=2048), TritonPlan(tile=8192, share=32), TritonPlan(block=4096)])
def test_long_rows_and_columns_are_cut_as_the_plan_says_and_stay_right(plan: TritonPlan, interpret: Any) -> None:
    chance, programs, truths = random.Random(0), {}, {}
    for name, shape, axes in (
        ("few long rows", (2, 20_000), (1,)), ("everything", (100, 300), (0, 1)), ("long columns", (6_000, 5), (0,)),
        ("wide columns", (600, 70), (0,)), ("batches", (30, 2, 700), (0, 2)),
    ):  # fmt: skip
        b = Builder()
        x = b.input("x", 0, shape, "float32")
        mean = b.map("div", b.reduce("sum", x, axes), float(torch.Size([shape[axis] for axis in axes]).numel()))
        apart = b.map("sub", x, mean)
        spread = b.map("sqrt", b.reduce("sum", b.map("mul", apart, apart), axes))
        graph = Graph(b.nodes, (b.map("div", apart, spread), b.reduce("min", x, axes)), TWO).live()
        inputs = [torch.randn(shape, generator=torch.Generator().manual_seed(chance.randrange(99))) + 3]
        programs[name] = (program(graph, plan), {}, [inputs])
        truths[name] = evaluate(graph, [each.double() for each in inputs], {})
    for name, got in interpret(programs).items():
        assert not isinstance(got, str), f"{got}\n{programs[name][0]}"
        for ours, truth in zip(got[0], truths[name], strict=True):
            error = F.mse_loss(ours.double(), truth).sqrt() / truth.pow(2).mean().sqrt()
            # the interpreter adds columns up one after the other
            assert error < 5e-6, f"{name}\n{programs[name][0]}"


def scanned(function: str, shape: tuple[int, ...], axis: int, mode: ScanMode) -> Graph:
    """A scan between two maps, one of which needs its operand, too."""
    b = Builder()
    x = b.input("x", 0, shape, "float32")
    near_one = b.map("add", b.map("mul", x, 0.01), 1.0)
    scan = b.scan(function, near_one, axis, mode)
    return Graph(b.nodes, (b.map("sub", b.map("minimum", b.map("maximum", scan, -9.0), 9e9), near_one), scan), TWO)


SCANS = {
    f"{function} of {name}{', backwards' * backwards}{', without itself' * exclusive}": scanned(
        function, shape, axis, ScanMode(backwards, exclusive)
    )
    for function in REDUCTIONS
    for name, shape, axis in (("rows", (5, 70), 1), ("columns", (3, 70, 5), 1))
    for backwards, exclusive in ((False, False), (True, False), (False, True), (True, True))
}
LONG_SCANS = {
    "one long row": scanned("sum", (100_003,), 0, ScanMode()),
    "one long row, backwards": scanned("sum", (100_003,), 0, ScanMode(backwards=True)),
    "few long rows": scanned("prod", (2, 33_000), 1, ScanMode()),
    "few long columns": scanned("sum", (4_000, 3), 0, ScanMode(backwards=True)),
}


EVERY_SCAN = {**SCANS, **LONG_SCANS}
SCANS_PER_PUSH = (
    "sum", *(f"{function} of rows, backwards" for function in ("max", "prod")), "max of columns, without",
    "one long row, backwards", "few long columns",
)  # fmt: skip
"""How the names of those in `make test` begin: every direction for one function, and the others in some of them."""


@pytest.fixture(scope="module")
def scans(interpret: Any, values_to_test: Callable[[str], set[Any]]) -> dict[str, Any]:
    names = values_to_test("name")
    programs = {name: (program(graph), {}, [numbers(graph)]) for name, graph in EVERY_SCAN.items() if name in names}
    got = interpret(programs)
    return {name: (given, got[name]) for name, given in programs.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name.startswith(SCANS_PER_PUSH) else VOLUME) for name in EVERY_SCAN],
)
def test_scans_are_right_in_every_direction(name: str, scans: dict[str, Any]) -> None:
    (source, _, (inputs,)), got = scans[name]
    assert not isinstance(got, str), f"{got}\n{source}"
    truths = evaluate(EVERY_SCAN[name], [each.double() for each in inputs], {})
    for ours, truth in zip(got[0], truths, strict=True):
        # the interpreter adds up one after the other, not in pairs
        torch.testing.assert_close(ours.double(), truth, rtol=2e-5, atol=2e-5, msg=lambda said: f"{said}\n{source}")


def test_a_scan_shares_a_kernel_with_its_maps_and_is_left_to_nobody() -> None:
    for graph in SCANS.values():
        source = program(graph)
        assert source.count("[(") - source.count("[(x") == 1
        assert "torch.cum" not in source


def test_few_long_places_are_shared_by_programs() -> None:
    for graph in LONG_SCANS.values():
        source = program(graph)
        (first, second) = re.findall(r"fused_\w*\[\((\d+),\)\]", source)
        assert first == second
        assert int(first) > 4
        assert ".to(tl.int64)" not in source


def _normalized(b: Builder, x: str, axes: tuple[int, ...]) -> str:
    count = float(torch.Size([b.shape(x)[axis] for axis in axes]).numel())
    apart = b.map("sub", x, b.map("div", b.reduce("sum", x, axes), count))
    return b.map("div", apart, b.map("sqrt", b.reduce("sum", b.map("mul", apart, apart), axes)))


def _soft(b: Builder, x: str, axes: tuple[int, ...]) -> str:
    grown = b.map("exp", b.map("sub", x, b.reduce("max", x, axes)))
    return b.map("div", grown, b.reduce("sum", grown, axes))


def _logarithm(b: Builder, x: str, axes: tuple[int, ...]) -> str:
    top = b.reduce("max", x, axes)
    return b.map("add", top, b.map("log", b.reduce("sum", b.map("exp", b.map("sub", x, top)), axes)))


def _expected(b: Builder, x: str, axes: tuple[int, ...]) -> str:
    """The mean of what the softmax is of, and of what varies less, times each other: three sums beside the maximum."""
    grown = b.map("exp", b.map("sub", x, b.reduce("max", x, axes)))
    places = b.input("places", 1, tuple(1 if i < max(axes) else size for i, size in enumerate(b.shape(x))), "float32")
    weighted = (grown, b.map("mul", grown, x), b.map("mul", places, grown))
    total, mean, place = (b.reduce("sum", each, axes) for each in weighted)
    return b.map("mul", b.map("div", mean, total), b.map("div", place, total))


TWO_SWEEPS = {"normalized": _normalized, "soft": _soft, "logarithm": _logarithm, "expected": _expected}
LONG = {
    "rows": ((3, 20_011), (1,)), "a few long rows": ((2, 70_000), (1,)), "even rows": ((4, 32_768), (1,)),
    "columns": ((2, 1_100, 70), (1,)), "wide columns": ((1_300, 140), (0,)), "batches": ((30, 3, 1_100), (0, 2)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("least", "names"),
    [
        (1, ("rows", "wide columns")), (1 << 60, ("rows",)),
        *(pytest.param(least, tuple(LONG), marks=VOLUME) for least in (1, 1 << 60)),
    ],
)  # fmt: skip
def test_two_sweeps_in_one_are_as_exact_as_two(
    least: int, names: tuple[str, ...], interpret: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With programs that take turns, and without; around a mean that is far from zero, and with what is infinite."""
    monkeypatch.setattr(cuts, "RELAYED", least)
    programs, truths = {}, {}
    for (kind, made), name in itertools.product(TWO_SWEEPS.items(), names):
        b, (shape, axes) = Builder(), LONG[name]
        graph = Graph(b.nodes, (made(b, b.input("x", 0, shape, "float32"), axes),)).live()
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        infinite = torch.where(x > 0.5, x * 20, -torch.inf)
        x = {"normalized": x + 100, "expected": x * 3}.get(kind, infinite)
        given = [x, *numbers(graph)[1:]]
        programs[f"{kind} {name}"] = (program(graph), {}, [given])
        truths[f"{kind} {name}"] = evaluate(graph, [each.double() for each in given], {})
    assert any("ready" in source for source, *_ in programs.values()) is (least == 1)
    for name, got in interpret(programs).items():
        assert not isinstance(got, str), f"{got}\n{programs[name][0]}"
        ours, truth = got[0].double(), truths[name][0]
        error = F.mse_loss(ours, truth).sqrt() / truth.pow(2).mean().sqrt()
        assert error < (2e-5 if name.startswith("normalized") else 1e-6), f"{name} {error}\n{programs[name][0]}"


def test_who_is_divided_by_a_sum_that_may_vanish_is_divided() -> None:
    """Exponentials from the largest of a column, added up along the rows: all of a row may be nothing."""
    b = Builder()
    x = b.input("x", 0, (300, 300), "float32")
    grown = b.map("exp", b.map("sub", x, b.reduce("max", x, (0,))))
    assert "(1.0 / sum)" in program(Graph(b.nodes, (b.map("div", grown, b.reduce("sum", grown, (0,))),)).live())
    assert "(1.0 / " not in program(Graph(b.nodes, (b.map("div", grown, b.reduce("sum", grown, (1,))),)).live())


def test_only_what_is_left_after_whole_steps_has_a_mask() -> None:
    b = Builder()
    x = b.input("x", 0, (300, 32_000), "float32")
    source = program(Graph(b.nodes, (_logarithm(b, x, (1,)),)).live())
    loop, left = source.split("the rest, less than a whole step")
    assert "mask" not in loop
    assert "mask=(i < 32000)" in left


def test_what_is_expected_of_a_softmax_is_found_in_one_sweep() -> None:
    b = Builder()
    x = b.input("x", 0, (300, 40_000), "float32")
    source = program(Graph(b.nodes, (_expected(b, x, (1,)),)).live())
    assert (source.count("@triton.jit"), source.count("for start in")) == (1, 1)


def test_no_program_waits_for_one_that_comes_after_it() -> None:
    b = Builder()
    x = b.input("x", 0, (64, 1 << 17), "float32")
    source = program(Graph(b.nodes, (_soft(b, x, (1,)),)).live())
    (parts,), (behind,) = re.findall(r"turn % (\d+)", source), set(re.findall(r"turn >= (\d+)", source))
    assert int(behind) >= int(parts) > 1
    (programs,) = re.findall(r"fused\w*\[\((\d+),\)\]|\[\((\d+),\)\]", source)
    assert int(next(filter(None, programs))) == 2 * (64 * int(parts) + int(behind))
    assert "ready" not in program(Graph(b.nodes, (_soft(b, x, (1,)),)).live(), TritonPlan(relay=0))


def test_a_thread_has_at_least_an_element() -> None:
    b = Builder()
    x = b.input("x", 0, (64, 1 << 17), "float32")
    assert "num_warps=32" in program(Graph(b.nodes, (b.reduce("sum", x, (1,)),)).live(), TritonPlan(share=2))


@pytest.mark.parametrize(("length", "in_turns"), [(1 << 17, True), (1 << 22, False)])
def test_turns_are_taken_unless_what_all_rows_share_fills_the_cache(length: int, in_turns: bool) -> None:
    b = Builder()
    x, scale, shift = (b.input(name, place, shape, "float32") for place, (name, shape) in enumerate(
        {"x": (64, length), "scale": (length,), "shift": (length,)}.items()
    ))  # fmt: skip
    result = b.map("add", b.map("mul", _soft(b, x, (1,)), scale), shift)
    source = program(Graph(b.nodes, (result,)).live())
    assert ("ready" in source) is in_turns
    # a row is read for the last time, and what the others share is not
    loads = {line.split(" = tl.load(")[0].strip(): line for line in source.splitlines() if "= tl.load(" in line}
    assert "evict_first" in loads["x_value"]
    assert "evict_last" in loads["scale_value"]


POSITIONS = {
    f"{packet} of {shape} along {axis}": (packet, shape, axis)
    for packet in ("argmax", "argmin")
    for shape, axis in (((5, 70), 1), ((3, 5000), 1), ((3, 70, 5), 1), ((2, 100, 300), 1), ((9, 8), None))
}


LONG_POSITIONS = [name for name, (packet, shape, _) in POSITIONS.items() if packet == "argmin" and max(shape) > 99]
"""In `make test-all` only: those of the largest are in `make test`, and so are short ones of the smallest."""


def _with_nan(shape: tuple[int, ...], axis: int | None) -> list[torch.Tensor]:
    """Tensors of this shape in which NaN and infinities stand in every order along the axis."""
    length = math.prod(shape) if axis is None else shape[axis]
    places, rows = math.prod(shape) // length, rows_with_nan(length)
    rows = rows[torch.arange(-(-len(rows) // places) * places) % len(rows)]
    if axis is None:
        return [row.reshape(shape) for row in rows]
    ends = (*shape[:axis], *shape[axis + 1 :])
    return [each.reshape(*ends, length).movedim(-1, axis).contiguous() for each in rows.split(places)]


@pytest.fixture(scope="module")
def positions(interpret: Any, values_to_test: Callable[[str], set[Any]]) -> dict[str, Any]:
    programs, names = {}, values_to_test("name")
    for name, (packet, shape, axis) in POSITIONS.items():
        if name not in names:
            continue
        b = Builder()
        x = Ref(b.input("x", 0, shape, "float32"))
        out = () if axis is None else shape[:axis] + shape[axis + 1 :]
        found = b.call(packet, f"aten.{packet}.default", ([x] if axis is None else [x, axis], {}), out, "int64")
        graph = Graph(b.nodes, (found,))
        inputs = [(each * 3).round() for each in numbers(graph)]  # the best comes often, and the first one counts
        for number, strange in enumerate(("inf", "-inf", "nan")):
            inputs[0].flatten()[number::997] = float(strange)
        programs[name] = (program(graph), {}, [numbers(graph), inputs, *([each] for each in _with_nan(shape, axis))])
    got = interpret(programs)
    return {name: (given, got[name]) for name, given in programs.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=VOLUME if name in LONG_POSITIONS else ()) for name in POSITIONS]
)
def test_the_first_of_the_best_is_found(name: str, positions: dict[str, Any]) -> None:
    packet, _, axis = POSITIONS[name]
    (source, _, calls), got = positions[name]
    assert not isinstance(got, str), f"{got}\n{source}"
    assert f"own_{packet}[" in source
    for (x,), ours in zip(calls, got, strict=True):
        assert torch.equal(ours, getattr(torch, packet)(x, axis)), source
