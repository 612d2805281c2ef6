"""Large problems: judged in pieces where memory is short, with the same verdicts as otherwise."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.errors import InputError
from kforge.evaluation import Judge
from kforge.evaluation.large_problems.plan import IN_PIECES
from kforge.records import Candidate, Correct, Evaluation, EvaluationLimits, EvaluationPolicy, Mismatch, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return torch.softmax(x * self.weight, -1)

def get_inputs():
    return [torch.randn(128, 256)]

def get_init_inputs():
    return [256]
"""
COUPLED = PROBLEM.replace("-1)", "-1) - x.mean()")
PROGRAM = PROBLEM.replace("class Model", "class ModelNew")
MEMORY = 30 << 16
"""A call holds 256 KiB: less than ten times as much is short, and four times as much is enough."""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    cache = tmp_path_factory.mktemp("cache")
    with Judge(
        platforms.find("cpu"),
        EvaluationPolicy(compile_baseline=False),
        cache=cache,
        environment=dict(os.environ),
        limits=EvaluationLimits(memory=MEMORY, timing_seconds=0.1, timing_cap=0.1),
    ) as judge:
        yield judge


@pytest.fixture
def evaluate(judge: Judge, tmp_path: Path) -> Callable[..., Evaluation]:
    def run(program: str, problem: str = PROBLEM) -> Evaluation:
        (tmp_path / "problem.py").write_text(problem)
        return judge.evaluate(problems.load(tmp_path / "problem.py"), Candidate(source=program, platform="cpu"))

    return run


def test_a_right_program_is_correct_in_pieces(evaluate: Callable[..., Evaluation]) -> None:
    evaluation = evaluate(PROGRAM)
    assert isinstance(evaluation.verdict, Correct), evaluation.verdict
    assert evaluation.verdict.cases >= 20
    assert IN_PIECES in evaluation.labels


LAST_ROW_WRONG = """
        y = torch.softmax(x * self.weight, -1)
        y[-1] = y[-2]
        return y"""
REUSED = """
        self.kept = getattr(self, "kept", torch.empty_like(x))
        return torch.softmax(x * self.weight, -1, out=None) if False else self.kept.copy_(
            torch.softmax(x * self.weight, -1))"""
MODIFIED = """
        y = torch.softmax(x * self.weight, -1)
        x[7, 3] += 1
        return y"""


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (LAST_ROW_WRONG, Mismatch, "error"),
        (MODIFIED, Rejected, "modifies an input"),
        (REUSED, Rejected, "buffer is used again"),
        ("\n        return x", Rejected, "view of an input"),
        ("\n        return torch.softmax(x * self.weight, -1)[:-1]", Mismatch, "shape"),
        ("\n        return torch.softmax(x * self.weight, -1).double()", Mismatch, "float32"),
        ("\n        return [torch.softmax(x * self.weight, -1)]", Mismatch, "tensor"),
    ],
)
def test_a_wrong_one_is_refused_as_otherwise(
    evaluate: Callable[..., Evaluation], body: str, kind: type, words: str
) -> None:
    program = PROGRAM.replace("\n        return torch.softmax(x * self.weight, -1)", body)
    verdict = evaluate(program).verdict
    assert isinstance(verdict, kind), verdict
    assert words in verdict.reason


def test_a_coupled_batch_is_judged_as_a_whole(evaluate: Callable[..., Evaluation]) -> None:
    evaluation = evaluate(COUPLED.replace("class Model", "class ModelNew"), COUPLED)
    assert isinstance(evaluation.verdict, Correct), evaluation.verdict
    assert IN_PIECES not in evaluation.labels


def test_too_little_memory_is_refused_before_anything_is_judged(evaluate: Callable[..., Evaluation]) -> None:
    larger = PROBLEM.replace("128", "512")
    with pytest.raises(InputError, match="raise --memory"):
        evaluate(larger.replace("class Model", "class ModelNew"), larger)


CLIPPED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, g):
        norm = torch.linalg.vector_norm(g)
        return torch.tanh(g * torch.clamp(1e6 / norm, max=1.0) / 1000)

def get_inputs():
    return [torch.randn(128, 256)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("factor", "right"),
    [
        ("torch.clamp(1e6 / torch.linalg.vector_norm(torch.linalg.vector_norm(g, dim=1)), max=1.0)", True),
        ("1.0", False),
    ],
)
def test_a_batch_that_is_coupled_where_it_is_large_is_judged_as_a_whole_there(
    evaluate: Callable[..., Evaluation], factor: str, right: bool
) -> None:
    program = CLIPPED.replace("class Model", "class ModelNew").replace("torch.clamp(1e6 / norm, max=1.0)", factor)
    evaluation = evaluate(program, CLIPPED)
    assert IN_PIECES in evaluation.labels or not right
    assert isinstance(evaluation.verdict, Correct if right else Mismatch), evaluation.verdict
