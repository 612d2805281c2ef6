"""Triton's products of short rows, and of long ones that are shared: by its interpreter, and how they are chosen."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge import problems
from kforge.problems.instance import instantiate
from kforge.records import Problem
from kforge.smith.frontend.trace import trace
from kforge.smith.ir.graph import Builder, Graph, Ref
from kforge.smith.languages.triton import Triton
from kforge.smith.languages.triton.plan import TritonPlan
from kforge.smith.languages.triton.product import short_rows, split_rows
from kforge.smith.languages.triton.product.halves import Parts, Rows
from kforge.smith.program import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kforge.problems.instance import Instance

PROBLEM = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def forward(self, {names}):
        return {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
THIN = {
    "odd sizes": ("70 50, 50 130", "x @ y"),
    "whole tiles": ("128 64, 64 128", "x @ y"),
    "a step and a half of a matrix unit": ("70 24, 24 40", "x @ y"),
    "next to nothing to add up": ("200 3, 3 5", "x @ y"),
    "many rows": ("1100 16, 16 20", "x @ y"),
    "left transposed": ("50 70, 50 130", "x.T @ y"),
    "right transposed": ("70 50, 130 50", "x @ y.T"),
    "both transposed": ("50 70, 130 50", "x.T @ y.T"),
    "batches": ("3 70 20, 3 20 30", "x @ y"),
    "batches, left transposed": ("3 20 70, 3 20 30", "x.mT @ y"),
    "batches, right transposed": ("3 70 20, 3 30 20", "x @ y.mT"),
    "a matrix for all batches": ("5 14 40, 40 33", "x @ y"),
    "batches of few columns": ("5 20 30, 5 30 10", "x @ y"),
    "parts of larger ones": ("70 90, 90 130", "x[:, 3:61] @ y[3:61].flip(1)"),
    "a bias": ("70 33, 20 33, 20", "F.linear(x, y, z)"),
    "a bias and a tail": ("5 14 64, 33 64, 33", "F.gelu(F.linear(x, y, z))"),
    "a tail with another tensor": ("3 70 20, 3 20 30, 3 70 30", "torch.relu(x @ y) - z"),
    "a tail of another shape": ("64 32, 32 64", "(x @ y).reshape(32, 128) * 2"),
    "a tail into a join": ("70 40, 40 33", "(lambda z: torch.cat([z * 2, z.tanh().flip(1)], 1))(x @ y)"),
    "a tail that is turned": ("64 40, 40 32", "-(x @ y).T"),
    "one row with a tail": ("1 40, 40 70", "F.gelu(x @ y)"),
    "one column with a tail": ("70 40, 40 1", "F.gelu(x @ y)"),
    "one number with a tail": ("1 40, 40 1", "-(x @ y)"),
}
SHARED = {
    "odd sizes": ("70 1003, 1003 130", "x @ y"),
    "whole pieces": ("64 1024, 1024 64", "x @ y"),
    "few results": ("3 777, 777 5", "x @ y"),
    "left transposed": ("523 3, 523 70", "x.T @ y"),
    "right transposed": ("3 1003, 70 1003", "x @ y.T"),
    "both transposed": ("1003 70, 30 1003", "x.T @ y.T"),
    "parts of larger ones": ("20 1013, 1013 30", "x[:, 3:1003].flip(1) @ y[3:1003]"),
    "a bias": ("20 1000, 33 1000, 33", "F.linear(x, y, z)"),
    "a bias and a tail": ("5 4 777, 33 777, 33", "F.gelu(F.linear(x, y, z))"),
    "a tail with another tensor": ("20 1000, 1000 30, 20 30", "torch.relu(x @ y) - z"),
    "one number with a tail": ("1 777, 777 1", "-(x @ y)"),
}
PER_PUSH = {
    "thin": (
        "odd sizes", "whole tiles", "next to nothing to add up", "left transposed", "both transposed", "batches",
        "a matrix for all batches", "parts of larger ones", "a bias and a tail", "a tail with another tensor",
        "a tail of another shape", "a tail into a join", "a tail that is turned", "one column with a tail",
        "one number with a tail",
    ),
    "thin, many tiles a program": ("batches", "a bias and a tail"),
    "shared": ("few results", "left transposed", "a bias and a tail"),
}  # fmt: skip
"""Cases of these kinds in `make test`; the others are in `make test-all`."""
STRANGE = {"short rows": ("70 50, 50 130", "x @ y"), "shared rows": ("20 500, 500 30", "x @ y")}
KINDS = {"thin": THIN, "thin, many tiles a program": THIN, "shared": SHARED, "strange": STRANGE}
CASES = {f"{kind}: {name}": (kind, case) for kind, cases in KINDS.items() for name, case in cases.items()}


def loaded(shapes: str, forward: str, folder: Path) -> Instance:
    given = [f"torch.randn({shape.strip().replace(' ', ', ')})" for shape in shapes.split(",")]
    path = folder / "problem.py"
    names = ", ".join("xyz"[: len(given)])
    path.write_text(PROBLEM.format(names=names, forward=forward, inputs=", ".join(given)))
    return instantiate(problems.load(path))


def program(instance: Instance) -> str:
    return write(instance.problem, trace(instance), Triton(), TritonPlan(split=2)).source


def not_finite(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    x, y = (each.clone() for each in inputs)
    x[0], x[3, 0], x[4, 7] = 0.0, float("nan"), float("inf")
    x[5, 8], x[6, 1], x[6, 2] = -float("inf"), float("inf"), -float("inf")
    x[8] = 0.0
    x[8, 5] = float("inf")  # alone in its row, whose scale says nothing, times what is next to nothing
    y[:, 3] *= 1e-36
    y[7, 9] = float("inf")
    return [x, y]


def scales(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Rows and columns from next to nothing to next to too large."""
    x, y = (each.clone() for each in inputs)
    x[0], x[1], x[2], x[3] = x[0] * 1e-37, x[1] * 1e30, x[2] * 1e37, 0.0
    y[:, 0], y[:, 1], y[:, 2] = y[:, 0] * 1e30, y[:, 1] * 1e-35, y[:, 2] * 0.0
    return [x, y]


@pytest.fixture(scope="module")
def results(
    interpret: Any, values_to_test: Callable[[str], set[Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    programs, instances, folder = {}, {}, tmp_path_factory.mktemp("problems")
    names = values_to_test("name")
    for name, (kind, case) in CASES.items():
        if name not in names:
            continue
        instance = instances[name] = loaded(*case, folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(split_rows, "PROCESSORS", 6)  # fewer pieces: the interpreter has one processor
            if "many" in kind:
                patch.setattr(short_rows, "PROGRAMS", 1)
            source = program(instance)
        # One number may be far smaller than what it is a sum of, and rounding errors are of the size of that.
        given = [instance.inputs(seed) for seed in range(4 if "one number" in name else 1)]
        if kind == "strange":
            given = [not_finite(given[0]), scales(given[0])]
        programs[name] = (source, {}, given)
    got = interpret(programs)
    return {name: (instances[name], *programs[name], got[name]) for name in programs}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(f"{kind}: {name}", marks=() if name in PER_PUSH.get(kind, cases) else pytest.mark.volume)
        for kind, cases in KINDS.items()
        if kind != "strange"
        for name in cases
    ],
)
def test_they_are_as_exact_as_torch(name: str, results: dict[str, Any]) -> None:
    instance, source, _, calls, got = results[name]
    assert not isinstance(got, str), f"{got}\n{source}"
    splitting = re.findall(r"own_\w+_(left|right|pieces)\[", source)
    assert splitting == (["left", "right", "pieces"] if name.startswith("shared") else ["right"]), source
    model = instance.make_model()
    truth = torch.stack([model(*(each.double() for each in inputs)) for inputs in calls])
    theirs = torch.stack([model(*inputs) for inputs in calls])
    ours, limit = (
        (each.double() - truth).abs().max() / truth.pow(2).mean().sqrt() for each in (torch.stack(got), theirs)
    )
    assert ours < 1.5 * limit + 5e-7, source


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"strange: {name}" for name in STRANGE])
def test_they_have_the_infinities_that_torch_gives(name: str, results: dict[str, Any]) -> None:
    _, source, _, ((x, y), _), got = results[name]
    assert not isinstance(got, str), f"{got}\n{source}"
    torch.testing.assert_close(got[0], x @ y, equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"strange: {name}" for name in STRANGE])
def test_they_are_exact_at_any_scale(name: str, results: dict[str, Any]) -> None:
    _, source, _, (_, (x, y)), got = results[name]
    assert not isinstance(got, str), f"{got}\n{source}"
    truth = x.double() @ y.double()
    size = x.double().norm(dim=1)[:, None] * y.double().norm(dim=0)[None, :]
    representable = (truth.abs() < 3e38) & (size > 1e-30) & (size < 1e38)
    assert bool(((got[1].double() - truth).abs() <= 5e-7 * size)[representable].all())
    assert not got[1][truth.abs() > 3.5e38].isfinite().any()
    assert not got[1][3].any()
    assert not got[1][:, 2].any()


def multiplied(batches: int, rows: int, inner: int, columns: int, split: int = 1) -> str:
    """A program of one product."""
    b, around = Builder(), (batches,) if batches > 1 else ()
    x = Ref(b.input("x", 0, (*around, rows, inner), "float32"))
    y = Ref(b.input("y", 1, (*around, inner, columns), "float32"))
    operator = "aten.bmm.default" if batches > 1 else "aten.mm.default"
    product = b.call("product", operator, ([x, y], {}), (*around, rows, columns), "float32")
    problem = Problem(name="given", source="import torch\nclass Model(torch.nn.Module): pass\n")
    source = write(problem, Graph(b.nodes, (product,)), Triton(), TritonPlan(split=split)).source
    ast.parse(source)
    return source


def kernels(source: str) -> list[str]:
    """What a product is made of; nothing where it stays torch's."""
    return re.findall(r"own_b?mm(\w*)\[", source)


WHOLE, SHORT, LONG = ["_left", "_right", ""], ["_right", ""], ["_left", "_right", "_pieces", ""]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 16384, 32, 16384), SHORT),
        ((1, 524288, 64, 128), SHORT),
        ((16, 8192, 64, 1024), SHORT),
        ((1, 256, 262144, 256), LONG),
        ((1, 500, 65_000, 300), LONG),
        ((1, 4096, 4096, 4096), WHOLE),
        ((1, 1024, 32, 1024), []),
        ((1, 4096, 64, 128), []),
        ((1, 16384, 8, 16384), []),
        ((4096, 32, 32, 32), []),
        ((1, 256, 4096, 256), []),
        ((1, 3, 100_000, 5), []),
    ],
)
def test_what_is_worth_it_is_taken(sizes: tuple[int, int, int, int], expected: list[str]) -> None:
    """The first two and the fourth were measured on an H200: torch takes 658, 282 and 690 µs."""
    assert kernels(multiplied(*sizes)) == expected
    assert kernels(multiplied(*sizes, split=0)) == []
    assert kernels(multiplied(*sizes, split=2)) != []


def test_a_program_keeps_its_columns_where_there_are_programs_enough() -> None:
    def tiles(rows: int, columns: int) -> int:
        (each,) = re.findall(r"tl\.range\((\d+)", multiplied(1, rows, 64, columns, split=2))
        return int(each)

    assert tiles(524288, 128) == tiles(16384, 16384) == short_rows.MOST
    assert 1 < tiles(70000, 128) < short_rows.MOST
    assert tiles(1000, 128) == 1


@pytest.mark.parametrize("batch", [1, 528, 529])
@pytest.mark.parametrize("steps", [(160, 16, 1), (160, 1, 10)])
def test_no_narrow_column_is_left_unsplit(batch: int, steps: tuple[int, int, int]) -> None:
    right = Parts("right", Rows("y", batch, 10, 16, steps), narrowest=16, step=16)
    assert right.programs * right.at_once == right.rows == batch * 16


def test_what_lies_far_away_is_counted_in_64_bits() -> None:
    for rows, wide in ((1 << 10, False), (1 << 25, True)):
        assert (".to(tl.int64)" in multiplied(1, rows, 16, 128, split=2)) is wide
