"""Labels say what was alike in the inputs of all cases that were judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from kforge import problems
from kforge.evaluation.correctness.cases import CaseSource
from kforge.evaluation.correctness.fixed_inputs import fixed_labels
from kforge.problems.instance import instantiate
from kforge.problems.tensors import all_finite

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import math
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, *more):
        {body}

def get_inputs():
    return [torch.randn(16, 16), {more}]

def get_init_inputs():
    return []
"""
INFINITY = 'float("-inf")'


def source_of(folder: Path, more: str, body: str) -> CaseSource:
    path = folder / "problem.py"
    path.write_text(SOURCE.format(body=body, more=more))
    return CaseSource(instantiate(problems.load(path)), "secret")


def judged(source: CaseSource, *names: str) -> set[str]:
    """The names of these cases (or of all) that the module takes, whole or singly; the source has learnt from them."""
    found, model = set(), source.instance.make_model()
    for name in names or source.order(0)[0]:
        for case in source.draw(0, name):
            try:
                takes = all_finite(model(*case.inputs)) and case.alike is None
            except ValueError:
                takes, case.group.refused = False, True
            if takes:
                source.learn(case)
                found.add(name)
                if case.part is None:
                    break
    return found


def labels_of(folder: Path, more: str, body: str) -> set[str]:
    source = source_of(folder, more, body)
    return {label for label, applies in fixed_labels(source, judged(source)).items() if applies}


REFUSED = "if not {test}: raise ValueError;"


@pytest.mark.parametrize(
    ("more", "body", "labelled"),
    [
        ("0.0", "return x + more[0] * x.sin()", False),
        ("math.inf", "return x.clamp(max=more[0])", False),
        ("0.5", "return x * more[0]", False),
        ("0.0", REFUSED.format(test="more[0] == 0.0") + " return x", True),
        ("math.inf, 0.5", REFUSED.format(test="more[0] == math.inf") + " return x * more[1]", True),
        ("0.0, math.inf", "return x * (1 + more[0]) * min(more[1], 2.0)", False),
        ("0.0, math.inf", REFUSED.format(test="more[0] == 0.0") + " return x.clamp(max=more[1])", True),
        ("True, 0.5", REFUSED.format(test="more[0]") + " return x * more[1]", True),  # a flag that was never turned
        ("3", "return x * more[0]", True),
        ("'relu'", "return x.relu()", True),
    ],
)
def test_scalars_that_were_alike_in_all_cases_are_labelled(
    tmp_path: Path, more: str, body: str, labelled: bool
) -> None:
    assert ("fixed_scalars" in labels_of(tmp_path, more, body)) is labelled


SYMMETRIC = "(lambda b: b @ b.mT + 2 * torch.eye(16))(torch.randn(16, 16))"


@pytest.mark.parametrize(
    ("more", "body", "labelled"),
    [
        (SYMMETRIC, "return x @ more[0]", False),
        # it takes only positive definite ones, of which there are others
        (SYMMETRIC, REFUSED.format(test="torch.linalg.eigvalsh(more[0]).min() > 0") + " return x", False),
        (SYMMETRIC, REFUSED.format(test="2 <= more[0].diagonal().min() <= more[0].max() < 90") + " return x", True),
        ("torch.rand(16).cumsum(0)", "return x + more[0]", False),
        (
            "torch.rand(16).cumsum(0) + 9",
            REFUSED.format(test="9 <= more[0].min() <= more[0].max() < 60") + " return x",
            True,
        ),
    ],
)
def test_floats_that_were_alike_in_all_cases_are_labelled(tmp_path: Path, more: str, body: str, labelled: bool) -> None:
    assert ("fixed_floats" in labels_of(tmp_path, more, body)) is labelled


def test_a_number_that_may_be_ordinary_is_so_beside_one_that_may_not(tmp_path: Path) -> None:
    source = source_of(tmp_path, "0.0, math.inf", REFUSED.format(test="more[0] == 0.0") + " return x * more[1]")
    assert judged(source, "ordinary_scalars") == {"ordinary_scalars"}
    assert source.varied_scalars == {1}
    assert not source.varied


ONE_MARK = "torch.eye(16)[torch.randint(16, (16,))].bool()"


@pytest.mark.parametrize(
    ("more", "body", "labelled"),
    [
        (ONE_MARK, "return x @ (x * more[0])", False),
        (ONE_MARK, "return x[more[0]]", True),
        (ONE_MARK, "return (x * more[0]) / more[0].sum(1, True)", True),
        ("torch.rand(16, 16) < 0.5", "return x[more[0]]", False),
    ],
)
def test_masks_that_kept_their_number_of_marks_are_labelled(
    tmp_path: Path, more: str, body: str, labelled: bool
) -> None:
    assert ("fixed_counts" in labels_of(tmp_path, more, body)) is labelled


@pytest.mark.parametrize(
    ("more", "labelled"),
    [
        (f"torch.full((16, 16), {INFINITY}).triu(1)", True),
        (f"torch.rand(16, 16) + torch.full((16, 16), {INFINITY}).triu(1)", True),
        (f"torch.cat([torch.rand(8), torch.full((8,), {INFINITY})])", True),
        (f"torch.zeros(16, 16).masked_fill(torch.rand(16, 16) < 0.3, {INFINITY})", False),
        (f"torch.rand(16, 16).masked_fill(torch.rand(16, 16) < 0.3, {INFINITY})", False),
        ("torch.rand(16, 16)", False),
    ],
)
def test_infinities_that_stayed_at_their_places_are_labelled(tmp_path: Path, more: str, labelled: bool) -> None:
    assert ("fixed_zeros" in labels_of(tmp_path, more, "return torch.softmax(x + more[0], -1)")) is labelled


def test_a_mask_of_zeros_and_infinities_gets_other_densities(tmp_path: Path) -> None:
    mask = f"torch.full((16, 16), {INFINITY}).scatter_(1, torch.rand(16, 16).topk(2, -1).indices, 0.0)"
    source = source_of(tmp_path, mask, "return torch.softmax(x + more[0], -1)")
    (case,) = list(source.draw(0, "moved_zeros"))[:1]
    assert int(case.inputs[1].isfinite().sum(1).max()) > 2
    assert torch.equal(case.inputs[0], source.instance.inputs(0)[0]) is False


@pytest.mark.parametrize(
    ("more", "labelled"), [("torch.randperm(64)[:32]", True), ("torch.randint(0, 8, (32,))", False)]
)
def test_integers_that_are_never_equal_are_labelled(tmp_path: Path, more: str, labelled: bool) -> None:
    assert ("distinct_integers" in labels_of(tmp_path, more, "return x + more[0].sum()")) is labelled
