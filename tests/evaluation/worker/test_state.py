"""State entries that are no plain tensors do not stop a program from being judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kforge import problems
from kforge.records import Candidate, Correct, Mismatch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.evaluation.untimed import UntimedJudge

    from kforge.records import Verdict

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 16)

    def forward(self, x):
        return self.linear(x)

def get_inputs():
    return [torch.randn(8, 24)]

def get_init_inputs():
    return []
"""
LINEAR = "self.linear = nn.Linear(24, 16)"
EXTRA = """

    def get_extra_state(self):
        return {"version": 2}

    def set_extra_state(self, state):
        assert state == {"version": 2}

    def forward("""


def verdict(judge: UntimedJudge, folder: Path, *changes: tuple[str, str]) -> Verdict:
    (folder / "problem.py").write_text(PROBLEM)
    source = PROBLEM.replace("class Model(", "class ModelNew(")
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return judge.evaluate(problems.load(folder / "problem.py"), Candidate(source=source, platform="null")).verdict


@pytest.mark.parametrize(
    "change",
    [(LINEAR, "self.linear = nn.LazyLinear(16)"), ("\n\n    def forward(", EXTRA)],
    ids=["a lazy module", "extra state"],
)
def test_an_honest_program_is_correct(untimed_judge: UntimedJudge, tmp_path: Path, change: tuple[str, str]) -> None:
    found = verdict(untimed_judge, tmp_path, change)
    assert isinstance(found, Correct), found


def test_a_lazy_module_must_take_the_references_weights(untimed_judge: UntimedJudge, tmp_path: Path) -> None:
    wrong = ("return self.linear(x)", "self.own = getattr(self, 'own', nn.Linear(24, 16))\n        return self.own(x)")
    found = verdict(untimed_judge, tmp_path, (LINEAR, "self.linear = nn.LazyLinear(16)"), wrong)
    assert isinstance(found, Mismatch), found
