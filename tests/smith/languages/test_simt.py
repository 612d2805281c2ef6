"""Programs in the SIMT dialects compute what the module does: run by the Metal emulator, PoCL and lavapipe, on x86-64
also by Intel's SYCL, and compiled for CUDA by NVRTC."""

from __future__ import annotations

import importlib.util
import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.smith.nan_rows import rows_with_nan
from tests.smith.problem_template import PROBLEM

from kforge import inline
from kforge.inline import configuration
from kforge.inline.sycl import packages
from kforge.problems.instance import instantiate
from kforge.problems.tensors import tensors_in
from kforge.records import Problem
from kforge.records.tolerances import FLOORS
from kforge.smith.frontend.trace import trace
from kforge.smith.languages.simt import Simt, dialect_of, names
from kforge.smith.languages.simt.plan import MOVES, SimtPlan
from kforge.smith.program import write
from kforge.smith.rewrite import simplify

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.problems.instance import Instance
    from kforge.smith.ir.graph import Graph

pytestmark = pytest.mark.usefixtures("two_threads")

FLAT = "x = torch.randn(7, 36)"
IMAGE = "x = torch.randn(3, 8, 5, 6)"
FAMILIES = {
    "maps": (
        FLAT, "a=36",
        "F.gelu(x) * self.a, F.mish(x) + F.softplus(x), F.elu(x) - x.sigmoid().tanh(), torch.erf(x), x.t() * 2 + 1, "
        "torch.log1p(x.abs()) + torch.expm1(x) + torch.log(x.abs() + 1e-3), torch.logical_and(x > 0, x < 1)",
    ),
    "views": (
        IMAGE, "a=8",
        "x.permute(0, 2, 3, 1) * self.a, x[:, ::3, 1:3] + 1, x.flip(1) * 2, torch.cat((x * 2, x[:, :3]), 1), "
        "torch.stack((x[..., ::2] * 2, x[..., 1::2] - 1), -1).flatten(-2), x.reshape(3, 8, 30).transpose(1, 2) * 3",
    ),
    "dtypes": (
        "x = torch.randint(0, 256, (3, 40), dtype=torch.uint8), y = torch.randint(-9, 9, (3, 40))", "a=40",
        "x.to(torch.float32) / 255 - self.a, y.float() * 0.5, torch.logical_or(x.float() > 9, y.float() < 0), "
        "(x.float() * 0.5).masked_fill(y.float() > 0, float('-inf')).softmax(-1)",
    ),
    "rows": (
        "x = torch.randn(5, 700)", "a=700",
        "torch.softmax(x, -1), F.layer_norm(x, (700,), self.a), x.sum(-1), x.amax(-1) - x.amin(-1), x.prod(-1), "
        "(x * x).mean(), x / x.norm(dim=-1, keepdim=True)",
    ),
    "short rows": ("x = torch.randn(3000, 7)", "", "x.logsumexp(-1) + x.sum(-1), x - x.mean(-1, keepdim=True)"),
    "columns": (
        "x = torch.randn(3, 50, 36)", "",
        "torch.softmax(x, 1), x.mean(0), x.sum((0, 1)), "
        "(x - x.mean((0, 2), keepdim=True)) / (x.var((0, 2), keepdim=True) + 1).sqrt()",
    ),
    "few long rows": (
        "x = torch.randn(2, 30011)", "", "torch.softmax(x, -1), x.sum(-1), (x - x.mean()).square().mean()",
    ),
    "scans": (
        "x = torch.randn(3, 203)", "a=203",
        "x.cumsum(1) * self.a, (x * 2).cumprod(0), x.flip(1).cumsum(1).flip(1), x.t().cumsum(1), "
        "torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), -1).cumsum(1), x.argmax(-1), x.argmin(0), x.argmax()",
    ),
    "one long scan": ("x = torch.randn(50021)", "", "x.cumsum(0)"),
    "windows": (
        IMAGE, "w=8 1 3 3|b=8",
        "F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 1, 1) * 2, F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), "
        "F.conv2d(x, self.w, self.b, padding=1, groups=8).relu()",
    ),
    "products": (
        "x = torch.randn(2, 37, 70), y = torch.randn(2, 70, 19)", "w=133 70|b=133",
        "x @ y, F.linear(x, self.w, self.b).relu() + 1, x.transpose(1, 2) @ x.flip(2)[:, :, 1::3]",
    ),
    "convolutions": (
        IMAGE, "w=12 4 3 3|b=12|v=8 3 3 2",
        "F.conv2d(x, self.w, self.b, padding=1, groups=2).sigmoid(), F.conv2d(x, self.w, None, 2, 1, 2, 2), "
        "F.conv_transpose2d(x, self.v, None, 2, 1, 1, 2) * 2, F.conv1d(x[:, :, 0], self.w[:, :, 0], None, 1, 2, 1, 2)",
    ),
    "attention": (
        "x = torch.randn(2, 3, 70, 24), y = torch.randn(2, 3, 41, 24)", "a=1 3 70 41",
        "F.scaled_dot_product_attention(x, y, y * 2).tanh(), F.scaled_dot_product_attention(x, x, x, is_causal=True), "
        "F.scaled_dot_product_attention(x, y, y, self.a)",
    ),
}  # fmt: skip
RUN = ("metal", "opencl", "sycl", "wgsl")
PLANS = {
    "usual": SimtPlan(), "small": SimtPlan(group=64, each=1, vector=0, held=0, parts=4, tile=16),
}  # fmt: skip

EMULATED = ("views", "columns", "scans", "products")
"""The families that the emulator runs in `make test`: it compiles for a second or two, and the others hardly at all."""
OFTEN = {"metal": EMULATED, "sycl": ("rows",)}
"""The families of a dialect that takes seconds for each program. In other dialects all families run in `make test`."""
PER_PUSH = {(dialect, family, "usual") for dialect in RUN for family in OFTEN.get(dialect, tuple(FAMILIES))}
"""Every family in at least two dialects. All of them, with both plans, are in `make test-all`."""


@pytest.fixture(autouse=True)
def _builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=tmp_path / "builds"))


def problem_of(family: str) -> Problem:
    inputs, parameters, forward = FAMILIES[family]
    init = [
        f"        self.{name} = nn.Parameter(torch.rand({', '.join(sizes.split())}) + 0.5)"
        for name, sizes in (each.split("=") for each in parameters.split("|") if each)
    ]
    given = [each.partition(" = ") for each in inputs.replace(", y = ", "\0y = ").split("\0")]
    source = PROBLEM.format(
        init="\n".join(init) or "        pass",
        names=", ".join(name for name, _, _ in given),
        inputs=", ".join(made for _, _, made in given),
        forward=forward,
    )
    return Problem(name="given", source=source)


@cache
def traced(problem: str) -> tuple[Instance, Graph]:
    """By a problem's text: all tests of a family share one graph, which is never changed."""
    instance = instantiate(Problem(name="given", source=problem))
    return instance, trace(instance)


@cache
def simplified(problem: str, dialect: str) -> Graph:
    return simplify(traced(problem)[1], Simt(dialect_of(dialect)).rules)[0]


def written(problem: Problem, dialect: str, plan: SimtPlan) -> tuple[Instance, str]:
    graph = simplified(problem.source, dialect)
    return traced(problem.source)[0], write(problem, graph, Simt(dialect_of(dialect)), plan).source


def skip_without_compiler(dialect: str) -> None:
    if dialect == "sycl":
        try:
            packages.find()
        except inline.ToolchainError as error:
            pytest.skip(str(error))


def is_right(instance: Instance, source: str) -> None:
    """Assert that a program is as near to float64 as the module itself."""
    program: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, "program.py", "exec"), program)
    torch.manual_seed(0)
    model, candidate = instance.make_model(), program["ModelNew"]()
    candidate.load_state_dict(model.state_dict())
    inputs = instance.inputs(0)
    with torch.no_grad():
        found, own = candidate(*inputs), model(*inputs)
        exact = model.double()(*(each.double() if each.is_floating_point() else each for each in inputs))
    for ours, theirs, truth in zip(tensors_in(found), tensors_in(own), tensors_in(exact), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        scale = max(float(theirs.double().square().mean().sqrt()), 1e-30)
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=1e-4, atol=2e-5 * scale, equal_nan=True)
        error = (ours.double() - truth.double()).abs().nan_to_num(0.0).max()
        usual = (theirs.double() - truth.double()).abs().nan_to_num(0.0).max()
        assert float(error) <= 3 * float(usual) + 4e-6 * max(scale, float(theirs.double().abs().max())), source


@pytest.mark.parametrize(
    ("dialect", "family", "plan"),
    [
        pytest.param(*case, marks=() if case in PER_PUSH else pytest.mark.volume)
        for case in itertools.product(RUN, FAMILIES, PLANS)
    ],
)
def test_programs_of_every_family_are_right_in_every_dialect(dialect: str, family: str, plan: str) -> None:
    skip_without_compiler(dialect)
    instance, source = written(problem_of(family), dialect, PLANS[plan])
    assert "torch.ops" not in source
    is_right(instance, source)


@pytest.mark.parametrize(
    "dialect", [pytest.param(each, marks=pytest.mark.volume if each == "sycl" else ()) for each in RUN]
)
def test_positions_are_those_of_the_first_nan(dialect: str) -> None:
    """In WGSL, too, though it promises nothing of NaN: lavapipe keeps what an element's bits say."""
    skip_without_compiler(dialect)
    short, long = rows_with_nan(7), rows_with_nan(300)
    forward = ", ".join(
        f"x.{packet}(1), y.{packet}(1), x.t().{packet}(0), y.t().{packet}(0), y.{packet}()"
        for packet in ("argmax", "argmin")
    )
    inputs = ", ".join(f"torch.randn{tuple(each.shape)}" for each in (short, long))
    source = PROBLEM.format(init="        pass", names="x, y", inputs=inputs, forward=forward)
    instance, source = written(Problem(name="given", source=source), dialect, SimtPlan())
    assert "torch.ops" not in source
    program: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, "program.py", "exec"), program)
    expected = instance.make_model()(short, long)
    for ours, theirs in zip(program["ModelNew"]()(short, long), expected, strict=True):
        assert torch.equal(ours, theirs), source


@pytest.mark.parametrize(
    "dialect", [pytest.param(each, marks=pytest.mark.volume if each == "sycl" else ()) for each in RUN]
)
@pytest.mark.parametrize("inner", [16384, 15013])
def test_products_with_long_sums_stay_within_the_tolerance(dialect: str, inner: int) -> None:
    skip_without_compiler(dialect)
    source = PROBLEM.format(
        init="        pass", names="x, y", inputs=f"torch.randn(16, {inner}), torch.randn({inner}, 16)", forward="x @ y"
    )
    instance, source = written(Problem(name="given", source=source), dialect, SimtPlan())
    assert "torch.ops" not in source
    program: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, "program.py", "exec"), program)
    x, y = instance.inputs(0)
    truth = x.double() @ y.double()
    error = (program["ModelNew"]()(x, y) - truth).abs().max() / truth.square().mean().sqrt()
    assert float(error) <= FLOORS["strict"]["float32"] / 2, source


def test_the_mean_of_many_equal_numbers_is_that_number_but_for_a_few_units() -> None:
    """What is left after the mean is taken off is nothing but its error."""
    shape = (4096, 4096)
    source = PROBLEM.format(
        init="        pass", names="x", inputs=f"torch.randn{shape}", forward="x.mean(dim=0), x.mean(dim=1)"
    )
    _, source = written(Problem(name="given", source=source), "opencl", SimtPlan())
    program: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, "program.py", "exec"), program)
    candidate, numbers = program["ModelNew"](), torch.rand(shape[0]) + 1
    columns, _ = candidate(numbers.expand(shape).contiguous())
    _, rows = candidate(numbers[:, None].expand(shape).contiguous())
    unit = torch.finfo(torch.float32).eps
    assert float((columns - numbers).abs().max()) <= 8 * unit, source
    assert float((rows - numbers).abs().max()) <= 8 * unit, source


@pytest.mark.parametrize("family", FAMILIES)
def test_programs_of_every_family_build_for_an_architecture_that_is_not_here(family: str) -> None:
    if importlib.util.find_spec("nvidia") is None:
        pytest.skip("no NVRTC: install nvidia-cuda-nvrtc")
    _, source = written(problem_of(family), "cuda", SimtPlan())
    program: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, "program.py", "exec"), program)
    assert isinstance(program["library"], inline.Library)


@pytest.mark.parametrize("dialect", names())
def test_every_dialect_writes_every_family(dialect: str) -> None:
    for family in FAMILIES:
        _, source = written(problem_of(family), dialect, SimtPlan())
        assert f'"{dialect_of(dialect).language}")' in source


def test_every_move_changes_some_program() -> None:
    plan = SimtPlan()
    long = PROBLEM.format(init="        pass", names="x", forward="x.sum()", inputs="torch.randn(4000000)")
    norm = PROBLEM.format(init="        pass", names="x", forward="x.softmax(-1)", inputs="torch.randn(3000, 5000)")
    flat = PROBLEM.format(init="        pass", names="x", forward="x @ x.t()", inputs="torch.randn(2100, 16)")
    problems = [Problem(name="given", source=source) for source in (long, norm, flat)]
    problems += [problem_of(family) for family in ("maps", "rows", "products", "attention")]
    programs = [written(problem, "cuda", plan)[1] for problem in problems]
    for move in MOVES:
        moved = move.applied(plan)
        assert isinstance(moved, SimtPlan)
        given = zip(problems, programs, strict=True)
        changed = (written(problem, "cuda", moved)[1] != program for problem, program in given)
        assert any(changed), move.action
