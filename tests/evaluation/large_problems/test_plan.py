"""What is planned for a problem: nothing, pieces where memory is short, a part where double precision is slow."""

from __future__ import annotations

import pytest
import torch

from kforge import platforms
from kforge.evaluation.comparison.comparison import compare
from kforge.evaluation.large_problems.pieces import Cut
from kforge.evaluation.large_problems.piecewise import Pieces
from kforge.evaluation.large_problems.plan import IN_PART, IN_PIECES, MemoryPlan
from kforge.evaluation.reference.reference import Reference
from kforge.problems.instance import Instance, instantiate
from kforge.records import Mismatch, Problem

SLOW = """
import time
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        if x.dtype == torch.float64:
            time.sleep(1e-3 * len(x))
        return torch.relu(x) + 1

def get_inputs():
    return [torch.randn(2048, 8)]

def get_init_inputs():
    return []
"""
QUICK = SLOW.replace("1e-3", "0")


def planned(source: str, *, seconds: float = 1.0, limit: int = 0) -> tuple[MemoryPlan, Instance]:
    instance = instantiate(Problem(name="relu", source=source))
    memory_plan = MemoryPlan(platforms.find("null").adapter, limit)
    memory_plan.plan(instance, instance.describe(), seconds)
    return memory_plan, instance


@pytest.fixture(scope="module")
def slow() -> tuple[Cut, Instance]:
    memory_plan, instance = planned(SLOW)
    assert memory_plan.cut is not None
    assert memory_plan.labels == (IN_PIECES, IN_PART)
    return memory_plan.cut, instance


def test_a_slow_reference_is_computed_in_part(slow: tuple[Cut, Instance]) -> None:
    cut, _ = slow  # 2 s a case in double precision, and some forty of them
    assert 1 <= cut.exact <= cut.count * 0.7
    assert len({tuple(sorted(cut.exact_pieces())) for _ in range(20)}) > 1


def test_a_quick_problem_is_judged_as_a_whole() -> None:
    assert planned(QUICK)[0].cut is None
    assert planned(SLOW, seconds=0.0)[0].cut is None


def test_short_memory_alone_leaves_every_truth_exact() -> None:
    memory_plan, _ = planned(QUICK, limit=10**6)
    assert memory_plan.labels == (IN_PIECES,)


def mismatches(slow: tuple[Cut, Instance], output: torch.Tensor, inputs: torch.Tensor) -> list[str]:
    cut, instance = slow
    pieces = Pieces(Reference(instance, 0), cut.into(32, share=1 / 32), [inputs])
    found = (compare(truth, part, "strict", "") for truth, part in pieces.against(output))
    return [each.reason for each in found if isinstance(each, Mismatch)]


def test_every_row_of_a_case_counts(slow: tuple[Cut, Instance]) -> None:
    inputs = torch.randn(64, 8)
    cut = slow[0]
    case = (type(cut)(0, 64, only_first=False), slow[1])
    right = torch.relu(inputs) + 1
    assert not mismatches(case, right, inputs)
    assert not mismatches(case, right * (1 + 4e-6), inputs)
    for row in range(0, 64, 7):
        wrong = right.clone()
        wrong[row, 3] *= 1.001
        assert len(mismatches(case, wrong, inputs)) == 1


COUPLED = SLOW.replace(
    "    def forward",
    """    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter({made})

    def forward""",
).replace("torch.relu(x) + 1", "torch.relu(x) + 1 + self.scale * x.mean(0)")


@pytest.mark.parametrize("made", ["torch.full((8,), 1e-9)", "torch.zeros(8)", "torch.ones(8)"])
def test_samples_that_a_tiny_weight_couples_are_not_cut(made: str) -> None:
    """LayerScale begins at 1e-6, and ReZero at zero: later weights show that samples depend on each other."""
    memory_plan, _ = planned(COUPLED.format(made=made))
    assert memory_plan.cut is None


@pytest.mark.parametrize(("wrong", "kinds"), [(None, []), ("shape", ["shape"]), ("kind", ["structure"])])
def test_a_named_tuple_is_judged_in_pieces(wrong: str | None, kinds: list[str]) -> None:
    """A program's named tuple arrives as a tuple."""
    source = QUICK.replace("torch.relu(x) + 1", "torch.sort(x, -1)")
    instance = instantiate(Problem(name="sort", source=source))
    inputs = torch.randn(64, 8)
    values, indices = torch.sort(inputs, -1)
    output = {None: (values, indices), "shape": (values[:, :4], indices), "kind": [values, indices]}[wrong]
    pieces = Pieces(Reference(instance, 0), Cut(0, 64, only_first=False).into(4), [inputs])
    found = [compare(truth, part, "strict", "") for truth, part in pieces.against(output)]
    assert [each.kind for each in found if isinstance(each, Mismatch)] == kinds
