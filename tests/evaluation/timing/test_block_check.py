"""What a program does only while it is timed is found from outside, and what is honest passes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.records import Candidate, Correct, EvaluationLimits, EvaluationPolicy, Verdict

PROBLEM = """
import sys, torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))
        self.register_buffer("mean", torch.zeros(64))
        self.folded = None

    def timed(self):
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != "go":
            frame = frame.f_back
        return frame is not None

    def product(self, x):
        return x @ self.weight

    def forward(self, x):
        timed = self.timed()
        self.mean.mul_(0.9).add_(0.1 * x.mean(dim=0))
        rows = x.mean(dim=0).repeat(len(x), 1)
        return self.product(x), rows

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return []
"""
STATISTICS = "self.mean.mul_(0.9).add_(0.1 * x.mean(dim=0))"
ROWS = "rows = x.mean(dim=0).repeat(len(x), 1)"
PRODUCT = "return x @ self.weight"


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


def verdict(judge: Judge, folder: Path, old: str, new: str) -> Verdict:
    problem = PROBLEM if STATISTICS in old else PROBLEM.replace(STATISTICS, "pass")
    (folder / "problem.py").write_text(problem)
    source = problem.replace("class Model(", "class ModelNew(")
    assert old in source
    candidate = Candidate(source=source.replace(old, new), platform="null")
    return judge.evaluate(problems.load(folder / "problem.py"), candidate).verdict


@pytest.mark.parametrize(
    ("old", "new", "state"),
    [
        (ROWS, f"{ROWS} if not timed else x.mean(dim=0).expand(len(x), -1)", "rejected"),
        (STATISTICS, f"if not timed: {STATISTICS}", "mismatch"),
        pytest.param(
            STATISTICS, f"{STATISTICS}\n        if timed: self.mean.add_(0.01)", "mismatch", marks=pytest.mark.volume
        ),
        (
            PRODUCT,
            "self.folded = self.folded if self.timed() and self.folded is not None else self.weight.clone()\n"
            "        return x @ self.folded",
            "mismatch",
        ),
    ],
    ids=["a stride of zero", "statistics left out", "statistics moved", "weights folded for good"],
)
def test_what_changes_when_it_is_timed_is_found(judge: Judge, tmp_path: Path, old: str, new: str, state: str) -> None:
    assert verdict(judge, tmp_path, old, new).state == state


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ROWS, "rows = x.mean(dim=0).expand(len(x), -1).contiguous()"),
        (STATISTICS, "self.mean.lerp_(x.mean(dim=0), 0.1)"),
        pytest.param(STATISTICS, "self.mean = 0.9 * self.mean + 0.1 * x.mean(dim=0)", marks=pytest.mark.volume),
        (PRODUCT, "return (self.weight.T @ x.T).T"),
    ],
    ids=["rows of their own", "another formula", "a buffer that is replaced", "a transposed output"],
)
def test_honest_near_misses_are_correct(judge: Judge, tmp_path: Path, old: str, new: str) -> None:
    found = verdict(judge, tmp_path, old, new)
    assert isinstance(found, Correct), found


def test_state_is_judged_by_its_own_tolerance_and_not_by_that_of_an_output(judge: Judge, tmp_path: Path) -> None:
    """Torch's error of the product below is a thousand floors, that of the running mean is none."""
    lax = PROBLEM.replace(PRODUCT, "return torch.sin(300 * (x @ self.weight))")
    (tmp_path / "problem.py").write_text(lax)
    few_bits = "self.mean.mul_(0.9).add_((0.1 * x.mean(dim=0)).half().float() if timed else 0.1 * x.mean(dim=0))"
    for statistics, accepted in ((STATISTICS, True), (few_bits, False)):
        source = lax.replace("class Model(", "class ModelNew(").replace(STATISTICS, statistics)
        verdict = judge.evaluate(
            problems.load(tmp_path / "problem.py"), Candidate(source=source, platform="null")
        ).verdict
        assert isinstance(verdict, Correct) == accepted, verdict


PICKED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def fresh(self, x):
        return torch.zeros(SHAPE)

    def picked(self, out, x, places):
        return out.scatter_(1, places, x)

    def forward(self, x, places):
        out = self.picked(self.fresh(x), x, places)
        return OUTPUT

def get_inputs():
    return [torch.rand(16, 1), torch.randint(0, 64, (16, 1))]

def get_init_inputs():
    return []
"""
RECYCLED = """
    pieces = []

    def fresh(self, x):
        for piece in self.pieces:
            if torch._C._storage_Use_Count(piece[0]._cdata) == 1:
                out = torch.empty(0, dtype=piece[2]).set_(piece[0], 0, SHAPE)
                self.piece = piece
                return out
        out = super().fresh(x)
        self.piece = [out.untyped_storage(), None, out.dtype]
        self.pieces.append(self.piece)
        return out

    def picked(self, out, x, places):
        if self.piece[1] is not None:
            out.scatter_(1, self.piece[1], self.blank)
        self.piece[1] = places.clone()
        return super().picked(out, x, places)

    blank = BLANK
"""


MASK = {"torch.zeros(SHAPE)": "torch.ones(SHAPE, dtype=torch.bool)", "places, x)": "places, False)"}
LARGE = {"torch.rand(16, 1)": "1e9 * torch.rand(16, 1)", "        out =": "        self.calls += 1\n        out ="}
OUTPUTS = ("(out, x.view(-1))", "out.expand(2, -1, -1)", "out.unfold(0, 4, 2)", "out[:, :-1]")


def picked(output: str, replaced: dict[str, str]) -> str:
    problem = PICKED
    for old, new in {**replaced, "SHAPE": "(16, 64)", "OUTPUT": output}.items():
        assert old in problem
        problem = problem.replace(old, new)
    return problem


@pytest.mark.parametrize(
    ("output", "replaced", "blank"),
    [
        *((output, {}, 0.0) for output in OUTPUTS[:2]),
        *(pytest.param(output, {}, 0.0, marks=pytest.mark.volume) for output in OUTPUTS[2:]),
        pytest.param("out", MASK, True, id="a mask of mostly ones"),
        pytest.param("out", LARGE, 0.0, id="large numbers of a module that counts its calls"),
    ],
)
def test_memory_that_is_used_again_must_be_cleared(
    judge: Judge, tmp_path: Path, output: str, replaced: dict[str, str], blank: object
) -> None:
    """A program clears only what it wrote to the memory of a freed output itself; a caller may have written to it.

    Cause: such outputs were not overwritten, or by numbers that nobody sees.
    """
    problem = picked(output, replaced)
    (tmp_path / "problem.py").write_text(problem)
    recycled = RECYCLED.replace("SHAPE", "(16, 64)").replace("BLANK", repr(blank))
    source = f"{problem}\nclass ModelNew(Model):\n{recycled}"
    found = judge.evaluate(problems.load(tmp_path / "problem.py"), Candidate(source=source, platform="null")).verdict
    assert found.state == "mismatch", found


def test_only_what_is_of_a_call_itself_is_written_to(judge: Judge, tmp_path: Path) -> None:
    """The reference returns views of its inputs and of a table that it keeps, which is no buffer. So may a program."""
    table = {'self.register_buffer("calls", torch.zeros(()))': "self.table = torch.arange(40.0)"}
    problem = picked(f"({', '.join(OUTPUTS)}, self.table, self.table[2:9])", table)
    (tmp_path / "problem.py").write_text(problem)
    source = problem.replace("class Model(", "class ModelNew(")
    found = judge.evaluate(problems.load(tmp_path / "problem.py"), Candidate(source=source, platform="null")).verdict
    assert isinstance(found, Correct), found
