"""Which cases can judge a program: the reference must accept their inputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge import problems
from kforge.errors import ProblemError
from kforge.evaluation.correctness.case import AS_GIVEN, Case
from kforge.evaluation.correctness.cases import CaseSource
from kforge.evaluation.correctness.usable_cases import UsableCases
from kforge.evaluation.large_problems.pieces import Cut
from kforge.evaluation.large_problems.piecewise import Pieces
from kforge.evaluation.reference.reference import Reference
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        if x.max() > 9: raise ValueError("too large")
        if x.max() < 0 and len(x) < 8: raise ValueError("too few")
        return x - x.mean() if x.min() < -9 else x + 1

def get_inputs():
    return [torch.rand(8, 4)]

def get_init_inputs():
    return []
"""
CUT = Cut(0, 8, only_first=False).into(4)


class Large:
    """The cases of a large problem, which is judged in pieces."""

    def __init__(self, folder: Path) -> None:
        path = folder / "problem.py"
        path.write_text(SOURCE)
        instance = instantiate(problems.load(path))
        self.reference = Reference(instance, 0)
        handover: Any = SimpleNamespace(reference=self.reference, instance=instance, precision="strict")
        self.usable = UsableCases(handover, CaseSource(instance, "secret", CUT), "strict")

    def takes_pieces(self, case: Case) -> bool:
        return self.usable.takes_pieces(case, Pieces(self.reference, CUT, case.inputs))

    def falls_apart(self, case: Case) -> bool | None:
        return self.usable.falls_apart(case, CUT)


@pytest.fixture
def large(tmp_path: Path) -> Large:
    return Large(tmp_path)


def given(number: int, value: float) -> Case:
    return Case(f"{AS_GIVEN} #{number}", [torch.full((8, 4), value)])


def other(value: float) -> Case:
    return Case("wide", [torch.full((8, 4), value)])


def test_inputs_as_given_are_tried_in_every_large_case(large: Large) -> None:
    """Cause: only the first case was tried, so in a later one a program could fail for inputs that the reference
    refuses."""
    assert large.takes_pieces(given(0, 1.0))
    with pytest.raises(ProblemError, match="too large"):
        large.takes_pieces(given(1, 10.0))


def test_large_case_is_dropped_if_the_reference_refuses_its_inputs(large: Large) -> None:
    """Cause: it was judged as a whole instead, like a case whose samples depend on each other."""
    assert large.takes_pieces(given(0, 1.0))
    case = other(10.0)
    assert large.takes_pieces(case)
    assert large.falls_apart(case) is None
    assert case.group.refused


@pytest.mark.parametrize(("value", "falls_apart"), [(1.0, True), (-1.0, False), (-10.0, False)])
def test_large_case_is_not_dropped_if_the_reference_accepts_it_as_a_whole(
    large: Large, value: float, falls_apart: bool
) -> None:
    """The reference refuses parts of the second one, and the third one depends on all samples."""
    assert large.takes_pieces(given(0, 1.0))
    case = other(value)
    case.inputs[0][0, 0] -= 0.5
    assert large.takes_pieces(case)
    assert large.falls_apart(case) is falls_apart
    assert not case.group.refused
