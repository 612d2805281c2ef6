"""Named tuples among the inputs of a problem: a program gets them with their fields, in its own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.evaluation.untimed import UntimedJudge

from kforge import problems
from kforge.records import Candidate, Correct, Mismatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.records import Problem, Verdict

BATCH = """
from typing import NamedTuple
import torch
from torch import nn

class Batch(NamedTuple):
    ids: torch.Tensor
    mask: torch.Tensor

    def kept(self):
        return self.mask.unsqueeze(-1).float()
"""
MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8)

    def forward(self, batches):
        (batch,) = batches["all"]
        return (self.table(batch.ids) * KEPT).sum(1) / KEPT.sum(1).clamp(min=1)
"""
INPUTS = """
def get_inputs():
    return [{"all": [Batch(torch.randint(0, 50, (16, 6)), torch.rand(16, 6) < 0.7)]}]

def get_init_inputs():
    return []
"""
TORCH = "import torch\nfrom torch import nn\n"
BY_METHOD, BY_FIELD = "batch.kept()", "batch.mask.unsqueeze(-1).float()"
BY_PLACE = f"(lambda ids, mask: {BY_FIELD.replace('batch.', '')})(*batch)"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UntimedJudge]:
    judge = UntimedJudge(tmp_path_factory.mktemp("cache"))
    yield judge
    judge.close()


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    path = tmp_path_factory.mktemp("problem") / "problem.py"
    path.write_text(BATCH + MODEL.replace("KEPT", BY_METHOD) + INPUTS)
    return problems.load(path)


def judged(judge: UntimedJudge, problem: Problem, head: str, kept: str) -> Verdict:
    source = head + MODEL.replace("KEPT", kept).replace("class Model(", "class ModelNew(")
    return judge.evaluate(problem, Candidate(source=source, platform="null")).verdict


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (BATCH, BY_METHOD),  # the class itself, with its methods
        (TORCH, BY_FIELD),
        (TORCH, BY_PLACE),
        (f"{TORCH}Batch = 3\n", BY_FIELD),
        (f"{TORCH}class Batch(tuple):\n    _fields = ('mask', 'ids')\n", BY_FIELD),
    ],
)
def test_a_program_reads_a_named_tuple_by_field_or_by_place(
    judge: UntimedJudge, problem: Problem, head: str, kept: str
) -> None:
    """Cause: workers got plain tuples, and a valid reference failed as an error of the evaluator."""
    verdict = judged(judge, problem, head, kept)
    assert isinstance(verdict, Correct), verdict


def test_a_wrong_program_is_told_from_a_right_one(judge: UntimedJudge, problem: Problem) -> None:
    assert isinstance(judged(judge, problem, BATCH, "(batch.kept() + 0.01)"), Mismatch)
