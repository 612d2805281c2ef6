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
        (STATISTICS, f"{STATISTICS}\n        if timed: self.mean.add_(0.01)", "mismatch"),
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
        (STATISTICS, "self.mean = 0.9 * self.mean + 0.1 * x.mean(dim=0)"),
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
