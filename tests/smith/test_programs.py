"""What the smith writes computes what the module does: every kernel shape, on inputs that show mistakes."""

from __future__ import annotations

import functools
import math
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.smith.nan_rows import rows_with_nan
from tests.smith.problem_template import PROBLEM

from kforge import inline, problems
from kforge.inline import configuration
from kforge.problems.instance import instantiate
from kforge.problems.tensors import tensors_in
from kforge.records import Problem
from kforge.smith.frontend.trace import trace
from kforge.smith.ir.graph import Builder, Graph, ScanMode
from kforge.smith.ir.interpret import evaluate
from kforge.smith.languages.cpp import Cpp
from kforge.smith.languages.cpp.plan import CppPlan
from kforge.smith.languages.triton import Triton
from kforge.smith.program import write
from kforge.smith.rewrite import simplify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import nn

    from kforge.problems.instance import Instance

pytestmark = pytest.mark.usefixtures("two_threads")

FLAT = "torch.randn(7, 33)"
IMAGE = "torch.randn(3, 8, 5, 6)"
CASES = {
    # each element for itself
    "chain": (FLAT, "torch.relu(x * 2 + 1).sigmoid() - x.tanh()", ""),
    "broadcast": (IMAGE, "x * self.a + self.b", "a=8 1 1|b=6"),
    "broadcast twice": (IMAGE, "x * self.a - self.b", "a=3 1 5 1|b=8 1 6"),
    "activations": (FLAT, "F.gelu(x) + F.gelu(x, approximate='tanh') + F.silu(x) + F.mish(x) + F.softplus(x)", ""),
    "more activations": (FLAT, "F.elu(x) + F.selu(x) + F.leaky_relu(x) + F.hardswish(x) + F.hardtanh(x)", ""),
    "logarithms": (FLAT, "torch.log(x.abs() + 1e-3) + torch.log1p(x.abs()) + torch.expm1(x) + torch.erf(x)", ""),
    "comparisons": (FLAT, "torch.where((x > 0.1) & (x < 1), x, -x) + (x == x)", ""),
    "a large one": ("torch.randn(40, 1031)", "F.gelu(x) * x", ""),
    "much memory": ("torch.randn(300, 1031)", "x.sigmoid(), x.cumsum(1), x.softmax(-1)", ""),
    "one number": ("torch.randn(())", "x.exp() + 1", ""),
    # rows
    "softmax": (FLAT, "torch.softmax(x, -1)", ""),
    "log softmax": (FLAT, "F.log_softmax(x * 3, dim=1)", ""),
    "layer norm": (FLAT, "F.layer_norm(x, (33,), self.a, self.b)", "a=33|b=33"),
    "products": (FLAT, "x.prod(-1), (x + 2).prod(0, keepdim=True)", ""),
    "frobenius": (IMAGE, "x / torch.linalg.matrix_norm(x, keepdim=True)", ""),
    "statistics of the batch": (IMAGE, "F.batch_norm(x, None, None, self.a, self.b, training=True)", "a=8|b=8"),
    "squeezed between": (FLAT, "(x.amax(-1) - x.amin(-1)) * 2 + x.sum(1, keepdim=True).sigmoid()[:, 0]", ""),
    "layer norm of two axes": (IMAGE, "F.layer_norm(x, (5, 6))", ""),
    "rms by hand": (FLAT, "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.a", "a=33"),
    "l2": (FLAT, "F.normalize(x, dim=-1)", ""),
    "short rows": ("torch.randn(6, 40, 5)", "x.amax(-1), x.softmax(-1), F.layer_norm(x, (5,)) * self.a", "a=5"),
    "many short rows": ("torch.randn(3000, 7)", "x.logsumexp(-1) + x.sum(-1), x - x.mean(-1, keepdim=True)", ""),
    "row sums": (FLAT, "x.sum(-1), x.mean(1, keepdim=True), x.amax(-1), x.std(-1), x.logsumexp(-1)", ""),
    "long rows": ("torch.randn(3, 10007)", "F.layer_norm(x, (10007,)) + x.sum(-1, keepdim=True)", ""),
    "longer rows": ("torch.randn(3, 12304)", "x.sum(-1), x.amax(-1), x.prod(-1), x / x.norm(dim=-1, keepdim=True)", ""),
    "instance norm": (IMAGE, "F.instance_norm(x)", ""),
    "group norm": (IMAGE, "F.group_norm(x, 2, self.a, self.b)", "a=8|b=8"),
    "batch statistics": (IMAGE, "(x - x.mean((0, 2, 3), True)) / (x.var((0, 2, 3), keepdim=True) + 1).sqrt()", ""),
    # columns
    "column softmax": (IMAGE, "torch.softmax(x, 1)", ""),
    "column sums": (FLAT, "x.sum(0), x.amin(0, keepdim=True)", ""),
    "middle": (IMAGE, "x - x.mean(2, keepdim=True)", ""),
    "long columns": ("torch.randn(9001, 5)", "x.sum(0), torch.softmax(x, 0)", ""),
    "wide columns": ("torch.randn(6, 1000)", "F.log_softmax(x, 0)", ""),
    # everything into one
    "mean of all": (FLAT, "(x * x).mean()", ""),
    "loss": ("torch.randn(7, 33), torch.randn(7, 33)", "F.mse_loss(x, y), F.smooth_l1_loss(x, y), F.l1_loss(x, y)", ""),
    "huber": ("torch.randn(7, 33), torch.randn(7, 33)", "F.huber_loss(x, y, delta=0.7, reduction='sum')", ""),
    "binary": (
        "torch.randn(7, 33) * 9, torch.randn(7, 33)",
        "F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction='none')", "",
    ),
    "binary with weights": (
        "torch.randn(7, 33), torch.randn(7, 33)",
        "F.binary_cross_entropy_with_logits(x, y.relu(), self.a, pos_weight=self.b)", "a=33|b=7 1",
    ),
    "labels": (
        FLAT, "F.cross_entropy(x, self.labels, label_smoothing=0.1, reduction='none')",
        "labels:0 32 5 -100 7 8 31",
    ),
    "labels of pixels": (
        IMAGE, "(lambda y: (F.cross_entropy(x, y), F.nll_loss(x, y, ignore_index=2, reduction='sum')))"
        "(self.labels.view(3, 5, 1).expand(3, 5, 6))", "labels:0 7 3 2 2 1 4 6 5 2 2 0 1 1 0",
    ),
    "one label": ("torch.randn(9)", "F.cross_entropy(x, self.labels[0])", "labels:3"),
    "extremes of activations": ("torch.randn(7, 33) * 30", "F.mish(x) + F.softplus(x) - F.logsigmoid(x)", ""),
    "whole norm": ("torch.randn(70, 33)", "x / torch.linalg.vector_norm(x) * self.a", "a=33"),
    "whole softmax": ("torch.randn(4099)", "torch.softmax(x, 0)", ""),
    "whole softmax of two axes": ("torch.randn(70, 33)", "torch.softmax((x * self.a).flatten(), 0)", "a=33"),
    "broadcast loss": ("torch.randn(70, 33), torch.randn(33)", "((x - y) ** 2).mean()", ""),
    # with torch between
    "linear": (FLAT, "torch.softmax(F.linear(x, self.w) * 2, -1).sum(-1)", "w=11 33"),
    "convolution": (IMAGE, "F.relu(F.conv2d(x, self.w, padding=1)) * 0.5 + 1", "w=4 8 3 3"),
    "sorted": (FLAT, "torch.sort(x * 2, dim=-1)[0] + 1", ""),
    "cumulated": (FLAT, "torch.cumsum(x + 1, dim=1) * 2", ""),
    # kernels of their own kind
    "max pool": (IMAGE, "F.max_pool2d(x, 3, 2, 1)", ""),
    "max pool 1d": ("torch.randn(3, 4, 17)", "F.max_pool1d(x * 2, 3, 1, 1)", ""),
    "max pool 3d": ("torch.randn(2, 3, 6, 7, 9)", "F.max_pool3d(x, 2, dilation=2) + 1", ""),
    "average pool": (IMAGE, "F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 1, 1)", ""),
    "average pool without padding": (IMAGE, "F.avg_pool2d(x, (3, 2), (1, 2), 1, count_include_pad=False)", ""),
    "average pool 3d": ("torch.randn(2, 3, 6, 7, 9)", "F.avg_pool3d(x, 3, 2, 1)", ""),
    "a pool that rounds up": (IMAGE, "F.max_pool2d(x, 2, ceil_mode=True)", ""),
    "depthwise": (IMAGE, "F.conv2d(x, self.w, self.b, padding=1, groups=8)", "w=8 1 3 3|b=8"),
    "depthwise with strides": (IMAGE, "F.conv2d(x, self.w, None, (1, 2), (2, 1), (2, 1), 8) * 2", "w=8 1 3 4"),
    "depthwise signal": ("torch.randn(2, 5, 29)", "F.conv1d(x, self.w, self.b, 3, 4, 2, 5)", "w=5 1 5|b=5"),
    "depthwise of few": (IMAGE, "F.conv2d(x, self.w, stride=3, groups=8)", "w=8 1 2 2"),
    "two filters for each": (IMAGE, "F.conv2d(x, self.w, groups=8)", "w=16 1 1 1"),
    "running sums": (FLAT, "x.cumsum(0), x.cumsum(1), (x + 1).cumprod(-1)", ""),
    "running sums inside": (IMAGE, "x.cumsum(1) + x.cumsum(2)", ""),
    "long running sums": ("torch.randn(5, 203)", "x.cumsum(1) * self.a, (x * 2).cumprod(1), x.cummax(1)[0]", "a=203"),
    "backwards": ("torch.randn(5, 203)", "x.flip(1).cumsum(1).flip(1), x.flip(0).cummin(0).values.flip(0) + 1", ""),
    "running extremes": (IMAGE, "x.cummax(1).values - x.cummin(-1)[0], *x.cummax(2)", ""),
    "one long running sum": ("torch.randn(10007)", "x.cumsum(0), x.cumsum(0).tanh().sum()", ""),
    "sums of sums": ("torch.randn(5, 203)", "x.cumsum(1).cumsum(1), x.cumsum(1).flip(1).cumsum(1)", ""),
    "of a transposed one": (FLAT, "x.t().cumsum(1)", ""),
    "positions": (FLAT, "x.argmax(-1), x.argmin(0), x.argmax(), x.argmin(1, keepdim=True)", ""),
    "positions inside": (IMAGE, "x.argmax(1) * 2", ""),
    # views
    "transposed": (FLAT, "x.t() * 2 + self.a", "a=7"),
    "permuted": (IMAGE, "x.permute(0, 2, 3, 1) * self.a", "a=8"),
    "both ways": ("torch.randn(9, 9)", "x + x.t()", ""),
    "flattened": (IMAGE, "torch.softmax(x.flatten(1), -1).view(3, 8, 5, 6)", ""),
    "reshaped after a permutation": (IMAGE, "x.permute(0, 2, 1, 3).reshape(3, 5, 48).relu()", ""),
    "expanded": (FLAT, "self.a.expand(7, 33).sum(0) + x", "a=7 1"),
    "squeezed": (FLAT, "x.sum(-1).unsqueeze(-1) / x", ""),
    "a slice": (IMAGE, "x[:, 1:7:2] * 2 + x[:, ::3, 1:3].sum((1, 2, 3), keepdim=True)", ""),
    "turned around": (FLAT, "x.flip(1) + x.flip((0, 1)).cumsum(1) - x[:, ::2].flip(-1).sum(1, keepdim=True)", ""),
    "halves": (IMAGE, "(lambda a, b: a * torch.sigmoid(b))(*x.chunk(2, 1))", ""),
    "parts": (IMAGE, "(lambda a, b, c: a.sum(-1) - b[..., 0] * c[..., 1])(*x.split((1, 2, 3), -1))", ""),
    "selected": (IMAGE, "x[:, 2] * x.select(-3, -1) + x.unbind(1)[0]", ""),
    "a part of a part": (IMAGE, "x[1:][:, 2:][..., 1:5:2].flatten(1).softmax(-1)", ""),
    "a slice of a reshaped permutation": (IMAGE, "x.permute(0, 2, 3, 1).reshape(3, 30, 2, 4)[..., 1] + 1", ""),
    "a slice for torch": (IMAGE, "F.conv2d(x[:, ::2].flip(1), self.w) + 1", "w=4 4 3 3"),
    "a slice itself": (FLAT, "x[:, 1:], (x + 1).flip(0)[::2]", ""),
    "unflattened": (FLAT, "x.unflatten(1, (3, -1)).amax(-1), x.T * 2, (x * 2).view_as(x)", ""),
    "stacked": (IMAGE, "torch.stack((x[..., ::2] * 2, x[..., 1::2] - 1), -1).flatten(-2)", ""),
    "joined": (IMAGE, "torch.cat((x * 2, x[:, :3], x.amax(1, keepdim=True)), 1)", ""),
    "joined twice": (FLAT, "(lambda y: (torch.cat((y, y), 1).relu(), torch.stack((y, x)), y))(x + 1)", ""),
    "joined and cumulated": (FLAT, "torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), -1).cumsum(1)", ""),
    # other dtypes
    "bytes": ("torch.randint(0, 256, (3, 8, 5), dtype=torch.uint8)", "(x.to(torch.float32) / 255 - self.a) * 2", "a=5"),
    "whole numbers": ("torch.randint(-9, 9, (7, 33))", "x.float() * 0.5 + self.a, x + 1", "a=33"),
    "masked": (FLAT, "(x * 0.5).masked_fill(~((x > 0) & (x < 1) | (x < -1)), float('-inf')).softmax(-1)", ""),
    # odd ones
    "nothing is dropped": (FLAT, "F.dropout(x, 0.0, True) * 2 + F.dropout(x, 0.5, False)", ""),
    "an output that is an input": (FLAT, "x", ""),
    "one twice": (FLAT, "(x + 1, x + 1)", ""),
    "names of languages": (FLAT, "x * self.switch + self.row", "switch=33|row=33"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=tmp_path / "builds"))


def problem_text(inputs: str, forward: str, parameters: str) -> str:
    init = [
        f"        self.{name} = nn.Parameter(torch.rand({', '.join(sizes.split())}) + 0.5)"
        for name, sizes in (each.split("=") for each in parameters.split("|") if "=" in each)
    ]
    init += [
        f"        self.register_buffer({name!r}, torch.tensor([{', '.join(values.split())}]))"
        for name, values in (each.split(":") for each in parameters.split("|") if ":" in each)
    ]
    names = "x, y" if inputs.count("torch.randn") == 2 else "x"
    return PROBLEM.format(init="\n".join(init) or "        pass", names=names, forward=forward, inputs=inputs)


def loaded(case: str, folder: Path, cases: Mapping[str, tuple[str, str, str]] = CASES) -> tuple[Problem, Instance]:
    path = folder / "problem.py"
    path.write_text(problem_text(*cases[case]))
    problem = problems.load(path)
    return problem, instantiate(problem)


def check(got: Any, model: nn.Module, inputs: list[torch.Tensor], source: str) -> None:
    """What a program returns is what the module does, as near to float64 as the module itself."""
    with torch.no_grad():
        own = model(*inputs)
        exact = model.double()(*(each.double() for each in inputs))
        model.float()
    assert type(got) is type(own)
    for ours, theirs, truth in zip(tensors_in(got), tensors_in(own), tensors_in(exact), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        scale = max(float(truth.abs().double().pow(2).mean().sqrt()), 1e-30) if truth.numel() else 1.0
        error = float((ours.double() - truth.double()).abs().max()) / scale
        assert error < 2e-5, source
        assert not math.isnan(error)


SCANS = [case for case, (_, forward, _) in CASES.items() if "cum" in forward]
IN_LANES = {
    "layer norm": 3, "products": 3, "squeezed between": 3, "l2": 3, "row sums": 3, "statistics of the batch": 5,
    "group norm": 5, "longer rows": 16,
}  # fmt: skip
PLANS = [
    *((case, CppPlan()) for case in CASES),
    *((case, CppPlan(scanned=0)) for case in SCANS),
    *((case, CppPlan(lanes=lanes)) for case, lanes in IN_LANES.items()),
]
MORE_IN_TRITON = {
    "broadcast twice", "more activations", "logarithms", "extremes of activations", "log softmax", "frobenius",
    "layer norm of two axes", "rms by hand", "l2", "many short rows", "longer rows", "instance norm",
    "batch statistics", "middle", "wide columns", "huber", "binary", "binary with weights", "labels of pixels",
    "whole softmax of two axes", "broadcast loss", "max pool 1d", "max pool 3d", "average pool without padding",
    "average pool 3d", "a pool that rounds up", "depthwise with strides", "depthwise signal", "depthwise of few",
    "running sums inside", "long running sums", "sums of sums", "of a transposed one", "positions inside", "permuted",
    "reshaped after a permutation", "squeezed", "parts", "a part of a part", "a slice of a reshaped permutation",
    "a slice itself", "joined twice", "joined and cumulated",
}  # fmt: skip
MORE_IN_CPP = {
    "broadcast", "activations", "row sums", "group norm", "column softmax", "loss", "labels", "whole softmax",
    "average pool", "max pool", "depthwise", "running sums", "positions", "transposed", "both ways", "halves", "joined",
    "stacked", "a slice", "flattened",
}  # fmt: skip
"""The cases that only `make test-all` has in that language. `make test` has every case in one language at least, and
cases of each kind in both."""
assert set(CASES) > MORE_IN_TRITON | MORE_IN_CPP
assert MORE_IN_TRITON.isdisjoint(MORE_IN_CPP)
AT_ONCE = 20
KERNELS = re.compile(r'^library = inline\.compile\(r"""(.*?)"""\)$', re.MULTILINE | re.DOTALL)


class Part:
    """The kernels of one program in a library of several."""

    def __init__(self, library: Any, prefix: str) -> None:
        self.library, self.prefix = library, prefix

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, self.prefix + name)


def compiled_together(sources: list[str]) -> list[dict[str, Any]]:
    """What several programs define, with one library for all that include the same headers.

    Each is in a namespace of its own. A compiler takes longer to start than to compile one of them.
    """
    programs: list[dict[str, Any]] = []
    shared: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for number, source in enumerate(sources):
        rest, kernels = source, KERNELS.search(source)
        if kernels is not None:
            rest = source.replace(kernels[0], "")
            text, names = kernels[1], re.findall(r'^extern "C" void (\w+)\(', kernels[1], re.MULTILINE)
            text = re.sub(rf"\b({'|'.join(names)})\b", rf"p{number}_\1", text)
            headers = re.findall(r"^#include .*$", text, re.MULTILINE)
            text = re.sub(r"^#include .*$", "", text, flags=re.MULTILINE)
            shared.setdefault(tuple(headers), []).append((number, f"namespace p{number} {{{text}}}\n"))
        programs.append({"__name__": "candidate"})
        exec(compile(rest, "candidate.py", "exec"), programs[-1])
    for headers, parts in shared.items():
        library = inline.compile("\n".join([*headers, *(text for _, text in parts)]))
        for number, _ in parts:
            programs[number]["library"] = Part(library, f"p{number}_")
    return programs


@pytest.fixture(scope="module")
def batches(
    tmp_path_factory: pytest.TempPathFactory, values_to_test: Callable[[str], set[Any]]
) -> Callable[[int], dict[int, tuple[str, Instance, Any]]]:
    """By the place of a plan among those to test: of each plan in its batch the program's text, its problem and its
    class."""
    to_test = sorted(values_to_test("index"))

    @functools.cache
    def batch(number: int) -> dict[int, tuple[str, Instance, Any]]:
        chosen = to_test[number * AT_ONCE : (number + 1) * AT_ONCE]
        problems_of = [loaded(PLANS[index][0], tmp_path_factory.mktemp("problem")) for index in chosen]
        sources = [
            write(problem, trace(instance), Cpp(), PLANS[index][1]).source
            for index, (problem, instance) in zip(chosen, problems_of, strict=True)
        ]
        made = zip(chosen, sources, problems_of, compiled_together(sources), strict=True)
        return {index: (source, instance, program["ModelNew"]) for index, source, (_, instance), program in made}

    return lambda index: batch(to_test.index(index) // AT_ONCE)


@pytest.mark.parametrize(
    "index",
    [
        pytest.param(index, marks=pytest.mark.volume if plan == CppPlan() and case in MORE_IN_CPP else ())
        for index, (case, plan) in enumerate(PLANS)
    ],
    ids=lambda index: f"{PLANS[index][0]}-{PLANS[index][1]}",
)
def test_what_is_written_is_right(index: int, batches: Callable[[int], dict[int, tuple[str, Instance, Any]]]) -> None:
    plan = PLANS[index][1]
    source, instance, written = batches(index)[index]
    assert plan.scanned or "scanned_" not in source
    assert ("first + lane" in source) == bool(plan.lanes)
    torch.manual_seed(0)
    model = instance.make_model()
    program = written()
    program.load_state_dict(model.state_dict())
    for seed in range(2):
        inputs = instance.inputs(seed)
        with torch.no_grad():
            got = program(*inputs)
        check(got, model, inputs, source)


def test_sums_of_equal_numbers_are_right_but_for_a_few_units() -> None:
    """All their additions round in the same direction. Cause: a loss over masks that were true throughout."""
    forward, shape = "x.mean(-1), x.view(16, 8, 16, -1).mean((1, 3)), (x * 1.0).mean(), x.mean(0)", (16, 8192)
    problem = Problem(name="given", source=problem_text(f"torch.randn{shape}", forward, ""))
    written: dict[str, Any] = {"__name__": "candidate"}
    source = write(problem, trace(instantiate(problem)), Cpp()).source
    exec(compile(source, "candidate.py", "exec"), written)
    candidate = written["ModelNew"]()
    for number in (torch.rand(64, generator=torch.Generator().manual_seed(1)) + 1).tolist():
        given = torch.full(shape, number)
        for found in candidate(given):
            assert float((found - given[0, 0]).abs().max()) <= 32 * torch.finfo(torch.float32).eps, source


def test_what_is_not_a_number_stays(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    forward = (
        "(lambda y: (F.relu(y), y.clamp(-1, 1), torch.maximum(x, y), torch.minimum(y, x), F.hardswish(y)))(x.log())"
    )
    path.write_text(problem_text(FLAT, forward, ""))
    problem = problems.load(path)
    instance = instantiate(problem)
    written: dict[str, Any] = {"__name__": "candidate"}
    source = write(problem, trace(instance), Cpp()).source
    exec(compile(source, "candidate.py", "exec"), written)
    inputs = instance.inputs(0)
    ours, theirs = written["ModelNew"]()(*inputs), instance.make_model()(*inputs)
    for got, expected in zip(ours, theirs, strict=True):
        assert expected.isnan().any()
        assert torch.allclose(got, expected, rtol=1e-5, atol=1e-6, equal_nan=True), source


@pytest.mark.parametrize("packet", ["argmax", "argmin"])
@pytest.mark.parametrize("length", [7, 300, 5003])
def test_positions_are_those_of_the_first_nan(packet: str, length: int, tmp_path: Path) -> None:
    x = rows_with_nan(length)
    path = tmp_path / "problem.py"
    forward = f"x.{packet}(1), y.{packet}(0), x.{packet}(), y[:, 0].{packet}()"
    path.write_text(problem_text(f"torch.randn{tuple(x.shape)}, torch.randn{tuple(x.t().shape)}", forward, ""))
    problem = problems.load(path)
    written: dict[str, Any] = {"__name__": "candidate"}
    source = write(problem, trace(instantiate(problem)), Cpp()).source
    exec(compile(source, "candidate.py", "exec"), written)
    assert "torch.ops" not in source
    y = x.t().contiguous()
    rows, columns, whole, row = written["ModelNew"]()(x, y)
    expected = getattr(torch, packet)(x, 1)
    assert torch.equal(rows, expected), source
    assert torch.equal(columns, expected), source
    assert whole == getattr(torch, packet)(x)
    assert row == getattr(torch, packet)(x[0])


@pytest.mark.parametrize(("case", "lanes"), [("row sums", 8), ("row sums", 11), ("softmax", 3)])
def test_rows_that_do_not_wait_for_their_sums_or_do_not_fit_have_no_lanes(
    case: str, lanes: int, tmp_path: Path
) -> None:
    problem, instance = loaded(case, tmp_path)
    source = write(problem, trace(instance), Cpp(), CppPlan(lanes=lanes)).source
    assert source.count("first + lane") == (case == "softmax")  # the largest, but not the sum of exponentials


FEWER_ROWS = {
    "much memory": "torch.randn(5, 1031)",
    "many short rows": "torch.randn(300, 7)",
    "short rows": "torch.randn(3, 11, 5)",
    "longer rows": "torch.randn(2, 12304)",
}
"""Each row is a program of a kernel, which the interpreter runs one after the other. Their lengths are as they were."""
TRITON_CASES = {case: (FEWER_ROWS.get(case, inputs), *rest) for case, (inputs, *rest) in CASES.items()}


@pytest.fixture(scope="module")
def in_triton(
    interpret: Any, values_to_test: Callable[[str], set[Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Any, Any]]:
    """Of every case: the program as it was given to the interpreter, and what it returned."""
    programs, folder = {}, tmp_path_factory.mktemp("problems")
    for case in sorted(values_to_test("case") & set(TRITON_CASES)):
        problem, instance = loaded(case, folder, TRITON_CASES)
        torch.manual_seed(0)
        state = instance.make_model().state_dict()
        programs[case] = (write(problem, trace(instance), Triton()).source, state, [instance.inputs(0)])
    got = interpret(programs)
    return {case: (programs[case], got[case]) for case in programs}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.volume if case in MORE_IN_TRITON else ()) for case in TRITON_CASES],
)
def test_what_is_written_in_triton_is_right(case: str, in_triton: dict[str, Any], tmp_path: Path) -> None:
    (source, state, (inputs,)), got = in_triton[case]
    assert not isinstance(got, str), f"{got}\n{source}"
    model = loaded(case, tmp_path, TRITON_CASES)[1].make_model()
    model.load_state_dict(state)
    check(got[0], model, inputs, source)


def test_inputs_of_another_shape_go_to_the_module_itself(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(problem_text(*CASES["softmax"]))
    problem = problems.load(path)
    written: dict[str, object] = {"__name__": "candidate"}
    exec(write(problem, trace(instantiate(problem)), Cpp()).source, written)
    x = torch.randn(2, 5)
    assert torch.equal(written["ModelNew"]()(x), torch.softmax(x, -1))  # type: ignore[operator]


class WithoutScans(Cpp):
    """A language that leaves scans to torch."""

    kinds = ("map", "reduce")


def test_scans_are_left_to_torch_where_a_language_has_none(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(problem_text("torch.randn(4, 6, 5)", "x", ""))
    for function in ("sum", "prod", "max", "min"):
        for backwards, exclusive in ((False, False), (True, False), (False, True), (True, True)):
            b = Builder()
            b.input("x", 0, (4, 6, 5), "float32")
            scan = b.scan(function, b.map("mul", "x", 2.0), 1, ScanMode(backwards, exclusive))
            graph = Graph(b.nodes, (b.map("maximum", scan, -9.0),))
            written: dict[str, object] = {"__name__": "candidate"}
            source = write(problems.load(path), graph, WithoutScans()).source
            assert "torch.cum" in source
            exec(source, written)
            x = torch.randn(4, 6, 5)
            ours, truth = written["ModelNew"]()(x), evaluate(graph, [x], {})[0]  # type: ignore[operator]
            assert torch.equal(ours.isinf(), truth.isinf())
            torch.testing.assert_close(ours, truth)


@pytest.mark.parametrize("shape", ["(40, 911)", "(3, 5003)", "(911, 70)", "(30011,)"])
def test_where_logarithms_of_sums_cancel_nothing_is_left(shape: str, tmp_path: Path) -> None:
    """Sums of the same elements in another order are the same: in rows, long ones, columns, and as a whole."""
    path = tmp_path / "problem.py"
    forward = "torch.logsumexp(x, 0) - torch.logsumexp(y, 0)"
    if shape.startswith(("(40", "(3,")):
        forward = forward.replace("0)", "1)")
    path.write_text(problem_text(f"torch.randn{shape}, torch.randn{shape}", forward, ""))
    problem = problems.load(path)
    written: dict[str, object] = {"__name__": "candidate"}
    graph, _ = simplify(trace(instantiate(problem)), Cpp().rules)
    exec(write(problem, graph, Cpp()).source, written)
    program = written["ModelNew"]()  # type: ignore[operator]
    x = instantiate(problem).inputs(0)[0]
    axis = x.dim() - 1 if "1)" in forward else 0
    for _ in range(5):
        mixed = x.index_select(axis, torch.randperm(x.shape[axis]))
        assert not program(x, mixed).any()
