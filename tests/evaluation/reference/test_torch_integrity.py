"""A referee goes on to another problem unless the last one left torch otherwise than it found it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.evaluation.reference.torch_integrity import TorchSnapshot
from kforge.records import Candidate, EvaluationLimits, EvaluationPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROBLEM = """\
import torch

def prepare():
    pass

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1

def get_inputs():
    prepare()
    return [torch.randn(64)]

def get_init_inputs():
    return []
"""
LEFT_BEHIND = {
    "a function of torch's": "torch.relu = torch.sigmoid",
    "a method of tensors": "torch.Tensor.cosh = torch.Tensor.sinh",
    "a function that is gone": "vars(torch.nn.functional).pop('gelu', None)",
    "the default dtype": "torch.set_default_dtype(torch.float64)",
    "the number of threads": "torch.set_num_threads(7)",
    "a flag": "torch.use_deterministic_algorithms(True, warn_only=True)",
    "where modules are found": "import sys; sys.path.append('left_behind')",
}
OF_EACH_KIND = ("a function of torch's", "the default dtype", "where modules are found")
"""Code that is replaced, a setting of torch's, and one of Python's."""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, clean_environment: dict[str, str]) -> Iterator[Judge]:
    cache = tmp_path_factory.mktemp("judge")
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False),
        cache=cache,
        environment=clean_environment,
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        yield judge


def load(folder: Path, left: str = "pass") -> problems.Problem:
    path = folder / "problem.py"
    path.write_text(PROBLEM.replace("    pass", f"    {left}", 1))
    return problems.load(path)


def test_a_referee_that_evaluated_judges_the_next_problem(judge: Judge, tmp_path: Path) -> None:
    problem = load(tmp_path)
    source = problem.source.replace("class Model(", "class ModelNew(")
    assert judge.evaluate(problem, Candidate(source=source, platform="null")).correct is not None
    first = judge._referee
    judge.freshen()
    assert judge._referee is first is not None


@pytest.mark.parametrize(
    "what",
    [
        *OF_EACH_KIND,
        *(pytest.param(what, marks=pytest.mark.volume) for what in LEFT_BEHIND if what not in OF_EACH_KIND),
    ],
)
def test_what_a_problem_leaves_behind_does_not_reach_the_next(judge: Judge, what: str, tmp_path: Path) -> None:
    judge.describe(load(tmp_path, LEFT_BEHIND[what]))
    judge.freshen()
    assert judge._referee is None
    judge.describe(load(tmp_path))


def test_what_is_added_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = TorchSnapshot()
    assert standing.holds()
    monkeypatch.setattr(torch, "something_of_mine", 1, raising=False)
    assert standing.holds()
    monkeypatch.setattr(torch, "relu", torch.relu)
    assert standing.holds()
    monkeypatch.setattr(torch, "relu", lambda x: x)
    assert not standing.holds()
