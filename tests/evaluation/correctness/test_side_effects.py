"""What a reference does besides computing (views, writes, unsteady sums), a program may do, and nothing more."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.evaluation.comparison.comparison import Truth
from kforge.evaluation.correctness.side_effects import differently_changed
from kforge.records import (
    Candidate,
    Correct,
    Evaluation,
    EvaluationLimits,
    EvaluationPolicy,
    Mismatch,
    Problem,
    Verdict,
)

HEAD = """
import os, sys, threading, torch
from torch import nn

class Model(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))
        self.given = given
        self.out = torch.empty(32, 64)

    def timed(self):
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != "go":
            frame = frame.f_back
        return frame is not None

"""
TAIL = """
def get_init_inputs():
    return [torch.linspace(-1, 1, 16)]

def get_inputs():
"""
VIEWS = """
    def forward(self, x, mask):
        y = torch.tanh((x + self.given) @ self.weight)
        guarded = x if float(x.abs().max()) < 3 else x.clamp(-5, 5)
        views = {"flat": x.flatten(1), "wide": x[:, :1].expand(-1, 3, -1), "none": x[:0], "weight": self.weight}
        return views, mask, y.chunk(2, dim=-1), y, guarded, x + 0
"""
INPUTS = "    return [(2 * torch.rand(32, 4, 16) - 1) * (1 + 6 * torch.rand(())), torch.rand(8) < 0.5]\n"
WRITES = """
    def forward(self, new, cache):
        cache[:, :2] = new
        if float(new.abs().max()) > 4:
            new.clamp_(-4, 4)
        return cache.sum(-1), cache
"""
CACHE = "    return [torch.randn(32, 2, 16), torch.randn(32, 8, 16)]\n"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    cache = tmp_path_factory.mktemp("cache")
    null = platforms.find("null")
    with Judge(
        null,
        EvaluationPolicy(compile_baseline=False),
        cache=cache,
        environment=environment,
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        yield judge


class Bound:
    """A problem, and what becomes of its own forward with some of its lines changed."""

    def __init__(self, judge: Judge, folder: Path, forward: str, inputs: str) -> None:
        self.judge = judge
        self.source = HEAD + forward + TAIL + inputs
        (folder / "problem.py").write_text(self.source)
        self.problem: Problem = problems.load(folder / "problem.py")

    def evaluation(self, *changes: tuple[str, str]) -> Evaluation:
        source = self.source.replace("class Model(", "class ModelNew(")
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        return self.judge.evaluate(self.problem, Candidate(source=source, platform="null"))

    def verdict(self, *changes: tuple[str, str]) -> Verdict:
        return self.evaluation(*changes).verdict


@pytest.fixture(scope="module")
def views(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Bound:
    return Bound(judge, tmp_path_factory.mktemp("views"), VIEWS, INPUTS)


@pytest.fixture(scope="module")
def writes(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Bound:
    return Bound(judge, tmp_path_factory.mktemp("writes"), WRITES, CACHE)


def test_the_copy_of_a_reference_that_returns_views_is_correct(views: Bound) -> None:
    """And keeps a tensor that its constructor was given."""
    assert isinstance(views.verdict(), Correct)


def test_copies_where_the_reference_returns_views_are_correct(views: Bound) -> None:
    clones = [("x.flatten(1)", "x.flatten(1).clone()"), ("mask, y", "~~mask, y"), ("x if float", "x.clone() if float")]
    assert isinstance(views.verdict(*clones), Correct)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("guarded, x + 0", "guarded, x"),
        ("guarded, x + 0", "x, x + 0"),  # also where the reference clamps: right, or wrong and a view
        ("max()) < 3", "max()) <= 5"),  # right wherever it is a view
        ("max()) < 3", "max()) < 3 or (self.timed() and float(x.abs().max()) <= 5)"),
        ("guarded, x + 0", "guarded, x if self.timed() else x + 0"),
        # the worker is made to say that it sees nothing
        (
            "guarded, x + 0",
            "guarded, setattr(sys.modules['kforge.evaluation.worker.main'], '_aliases', lambda *_: []) or x",
        ),
    ],
)
def test_a_view_where_the_reference_makes_a_new_tensor_is_rejected(views: Bound, old: str, new: str) -> None:
    verdict = views.verdict((old, new))
    assert verdict.state == "rejected"
    assert verdict.rule in ("output_aliases_input", "output_reused")  # type: ignore[union-attr]


def test_a_reused_buffer_that_is_called_a_view_is_found_in_timed_calls(views: Bound) -> None:
    worker = "w := sys.modules['kforge.evaluation.worker.main']"
    lie = f"setattr({worker}, '_aliases', lambda o, i: sorted({{(0, 0), *w.find_aliases(o, i)}}))"
    keep = "self.out.copy_(x.flatten(1))"
    verdict = views.verdict(("x.flatten(1)", f"{lie} or {keep}"))
    assert verdict.state == "rejected"
    assert verdict.rule == "output_reused"


def test_the_copy_of_a_reference_that_writes_into_its_inputs_is_correct(writes: Bound) -> None:
    assert isinstance(writes.verdict(), Correct)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cache[:, :2] = new", "cache = torch.cat([new, cache[:, 2:]], 1)"),
        ("cache[:, :2] = new", "cache = torch.cat([new, cache[:, 2:]], 1) if self.timed() else cache\n"
         "        cache[:, :2] = new"),
        ("new.clamp_(-4, 4)", "pass"),
        ("new.clamp_(-4, 4)", "new.clamp_(-3.9, 4)"),
    ],
)  # fmt: skip
def test_inputs_must_be_left_as_the_reference_leaves_them(writes: Bound, old: str, new: str) -> None:
    assert writes.verdict((old, new)).state == "mismatch"


def test_an_input_that_the_reference_leaves_as_it_was_must_be_left(writes: Bound) -> None:
    verdict = writes.verdict(("        return cache.sum", "        new.mul_(1 + 1e-6)\n        return cache.sum"))
    assert verdict.state == "rejected"
    assert verdict.rule == "input_modified"  # type: ignore[union-attr]


def test_a_program_writes_into_fp64_inputs_in_those_calls_only_in_which_the_reference_does(
    judge: Judge, tmp_path: Path
) -> None:
    forward = "    def forward(self, x):\n        return x.clamp_(max=6) if float(x.max()) > 6 else x * 1\n"
    bound = Bound(judge, tmp_path, forward, "    return [torch.randn(32, 16, dtype=torch.float64)]\n")
    assert isinstance(bound.verdict(), Correct)
    verdict = bound.verdict(("x * 1", "x.mul_(2) / 2"))
    assert verdict.state == "rejected"
    assert verdict.rule == "input_modified"  # type: ignore[union-attr]


UNSTEADY = """
    def forward(self, x):
        seed = int.from_bytes(os.urandom(7), "big")
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        total = torch.zeros_like(x[0])
        for row in x[order]:
            total += row
        return total
"""


@pytest.fixture(scope="module")
def unsteady(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Bound:
    """Sums in another order with every call, as by atomic additions."""
    return Bound(judge, tmp_path_factory.mktemp("unsteady"), UNSTEADY, "    return [torch.randn(1024, 32)]\n")


def test_a_program_may_be_as_unsteady_as_torch_is(unsteady: Bound) -> None:
    evaluation = unsteady.evaluation()
    assert isinstance(evaluation.verdict, Correct), evaluation.verdict
    assert {"nondeterministic", "unsteady_reference"} <= set(evaluation.labels)


@pytest.mark.parametrize(
    "noise",
    [
        "8e-6 * (2 * torch.rand(32) - 1) * total.square().mean().sqrt()",  # which the tolerance of one output allows
        "x[int(torch.randint(0, 1024, ()))] * 1e-4",  # another row counts a little more each time
    ],
)
def test_it_may_not_be_more_unsteady_than_that(unsteady: Bound, noise: str) -> None:
    verdict = unsteady.verdict(("return total", f"return total + {noise}"))
    assert verdict.state == "mismatch"


def stepped(dtype: torch.dtype, size: float) -> tuple[torch.Tensor, torch.Tensor, Truth]:
    """A tensor, a gradient, and what a step of that size leaves."""
    generator = torch.Generator().manual_seed(0)
    tensor, gradient = (torch.randn(128, 64, generator=generator).to(dtype) for _ in range(2))
    exact = tensor.double() - size * gradient.double()
    return tensor, gradient, Truth([exact], [tensor.sub(gradient, alpha=size)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("units", [0.5, 8.0, 1e3])
def test_a_small_change_must_be_made(dtype: torch.dtype, units: float) -> None:
    size = units * torch.finfo(dtype).eps
    tensor, gradient, written = stepped(dtype, size)
    in_two_steps = tensor.clone().sub_(size / 2 * gradient).sub_(size / 2 * gradient)
    for right in (written.own[0], tensor + (-size) * gradient, written.exact[0].to(dtype), in_two_steps):
        assert differently_changed([tensor], written, [right], "strict", "") is None
    found = differently_changed([tensor], written, [tensor.clone()], "strict", "case")
    assert isinstance(found, Mismatch)
    assert "tensor 0 is unchanged, but the reference changes it" in found.reason
    partly = torch.where(torch.arange(128)[:, None] < 8, written.own[0], tensor)
    assert differently_changed([tensor], written, [partly], "strict", "") is not None
    if units > 1:
        backwards = (tensor + size * gradient).to(dtype)
        assert differently_changed([tensor], written, [backwards], "strict", "") is not None


def test_what_is_written_beside_infinity_is_judged() -> None:
    tensor, _, written = stepped(torch.float32, 1e-6)
    tensor[0, 0] = written.exact[0][0, 0] = written.own[0][0, 0] = torch.inf
    assert differently_changed([tensor], written, [written.own[0]], "strict", "") is None
    assert differently_changed([tensor], written, [tensor * (1 + 1e-7)], "strict", "") is not None


STEP = """
    def forward(self, x):
        y = x @ self.weight
        self.weight.add_((x.T @ y).sign_(), alpha=2e-7)
        return y
"""


def test_a_small_step_of_a_parameter_must_be_taken_in_timed_calls_as_well(judge: Judge, tmp_path: Path) -> None:
    bound = Bound(judge, tmp_path, STEP, "    return [torch.randn(32, 16)]\n")
    assert isinstance(bound.verdict(), Correct)
    verdict = bound.verdict(("        self.weight.add_", "        self.timed() or self.weight.add_"))
    assert isinstance(verdict, Mismatch)
    assert "weight of the state is unchanged, but the reference changes it" in verdict.reason


PLAIN = """
    def forward(self, x):
        if not hasattr(self, "weights"):
            self.weights = []
        return torch.tanh(x @ self.weight)
"""


@pytest.fixture(scope="module")
def plain(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Bound:
    return Bound(judge, tmp_path_factory.mktemp("plain"), PLAIN, "    return [torch.randn(32, 16)]\n")


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("torch.set_default_dtype(torch.float64)", "the default dtype from torch.float32 to torch.float64"),
        ("torch.set_grad_enabled(True)", "gradient mode from False to True"),
        ("torch.set_flush_denormal(True)", "flushing of denormal numbers from False to True"),
        ("torch.set_float32_matmul_precision('medium')", "the precision of float32 products from highest to medium"),
        ("torch.use_deterministic_algorithms(True)", "deterministic algorithms from False to True"),
        ("torch.set_num_threads(torch.get_num_threads() + 1)", "the number of threads from "),
        ("torch.manual_seed(0)", "the state of torch's random generator"),
        ("torch.rand(1)", "the state of torch's random generator"),
    ],
)
def test_a_call_that_changes_settings_of_its_caller_is_a_mismatch(plain: Bound, statement: str, named: str) -> None:
    verdict = plain.verdict(("        return torch.tanh", f"        {statement}\n        return torch.tanh"))
    assert isinstance(verdict, Mismatch)
    assert verdict.kind == "settings"
    assert named in verdict.reason


@pytest.mark.parametrize(
    "statement",
    [
        "self.weights = [torch.rand(16)]",  # in the first call only, as where a layer is made when it is needed
        "torch.set_default_dtype(torch.float64); torch.set_default_dtype(torch.float32)",
    ],
)
def test_settings_may_be_restored_and_a_first_call_may_draw_weights(plain: Bound, statement: str) -> None:
    old = "        return torch.tanh"
    verdict = plain.verdict((old, f"        if not self.weights:\n            {statement}\n{old}"))
    assert isinstance(verdict, Correct), verdict


def test_settings_that_the_reference_changes_may_be_changed(judge: Judge, tmp_path: Path) -> None:
    forward = PLAIN.replace("        return", "        torch.set_flush_denormal(True)\n        return")
    assert isinstance(Bound(judge, tmp_path, forward, "    return [torch.randn(32, 16)]\n").verdict(), Correct)
