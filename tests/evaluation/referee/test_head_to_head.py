"""Two real programs, timed against each other by a judge."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.records import Candidate, EvaluationLimits, EvaluationPolicy, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x):
        return self.norm(self.layer(x))


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return []
"""
PLAIN = PROBLEM.replace("self.norm(self.layer(x))", "self.layer(x)").replace(
    "        self.norm = nn.BatchNorm1d(32)\n", ""
)
HALVES = """\
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.Linear(32, 32)
        self.weight = nn.Parameter(layer.weight.detach().t().contiguous())
        self.shift = nn.Parameter(layer.bias.detach().clone())

    def forward(self, x):
        return x @ self.weight + self.shift
"""
"""Keeps its weights in another form."""


def like(source: str, forward: str) -> Candidate:
    """The problem's own module as a candidate, with this expression for its result."""
    module = source.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    before, _, _ = module.rpartition("return ")
    return Candidate(source=f"{before}y = x\n        return {forward}\n", platform="null")


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False),
        cache=tmp_path_factory.mktemp("cache"),
        environment={"PATH": os.environ["PATH"]},
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=2.0),
    ) as judge:
        yield judge


def written(folder: Path, source: str) -> Problem:
    (folder / "problem.py").write_text(source)
    return problems.load(folder / "problem.py")


def test_far_faster_and_far_slower_programs_with_state_are_told_apart(judge: Judge, tmp_path: Path) -> None:
    problem = written(tmp_path, PROBLEM)
    quick = like(PROBLEM, "self.norm(self.layer(x))")
    slow = like(PROBLEM, "self.norm(self.layer(x)) + sum([0 * x.sum() for _ in range(400)])")
    found = judge.head_to_head(problem, quick, slow)
    assert found.finding == "faster", found
    assert found.speedup is not None
    assert found.speedup.low > 1
    assert (found.seconds or 0) < (found.rival_seconds or 0)
    assert judge.head_to_head(problem, slow, quick).finding == "slower"


def test_a_program_that_keeps_its_weights_in_another_form_has_a_finding(judge: Judge, tmp_path: Path) -> None:
    problem = written(tmp_path, PLAIN)
    slow = like(PLAIN, "self.layer(x) + sum([0 * x.sum() for _ in range(400)])")
    repacked = Candidate(source=HALVES, platform="null")
    assert judge.head_to_head(problem, repacked, slow).finding == "faster"
    assert judge.head_to_head(problem, slow, repacked).finding == "slower"


def test_a_program_that_is_wrong_leaves_it_undecided(judge: Judge, tmp_path: Path) -> None:
    problem = written(tmp_path, PLAIN)
    right, wrong = like(PLAIN, "self.layer(x)"), like(PLAIN, "2 * self.layer(x)")
    for pair in ((right, wrong), (wrong, right)):
        found = judge.head_to_head(problem, *pair)
        assert (found.finding, found.speedup) == ("undecided", None)
        assert found.reason.startswith("a program failed while the two were timed: ")


IDLE = """\
import torch
from torch import nn

empty_blocks, zeros = [0], torch.zeros


def counted(*size, **named):
    empty_blocks[0] += size == ((),)
    return zeros(*size, **named)


torch.zeros = counted


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.empty, self.idle = 0, None

    def forward(self, x):
        if empty_blocks[0] > self.empty:
            self.empty, self.idle = empty_blocks[0], self.layer.weight._version
        return torch.ones(16, 32) if self.layer.weight._version == self.idle else self.layer(x)
"""
"""Computes nothing where it is the baseline of a race: only then is it given empty blocks, before the first calls."""


def test_a_program_that_idles_as_a_baseline_is_seen(judge: Judge, tmp_path: Path) -> None:
    problem = written(tmp_path, PLAIN)
    slow, idle = like(PLAIN, "self.layer(x) + 0 * x.sum()"), Candidate(source=IDLE, platform="null")
    for pair in ((idle, slow), (slow, idle)):
        found = judge.head_to_head(problem, *pair)
        assert found.finding == "undecided"
        assert found.reason.startswith("a program failed while the two were timed: ")
