"""References that round to half precision inside: the truth is without the rounding, where that is near."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from kforge import problems
from kforge.evaluation.comparison.comparison import Agreement, Truth, compare
from kforge.evaluation.correctness.beyond_given_values import is_sound
from kforge.evaluation.reference.reference import Reference
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter({weight})

    def forward(self, x):
        {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def judged(
    folder: Path, body: str, *, inputs: str = "torch.randn(16, 32)", weight: str = "torch.randn(32, 32)"
) -> tuple[Reference, Truth]:
    (folder / "problem.py").write_text(SOURCE.format(body=body, inputs=inputs, weight=weight))
    reference = Reference(instantiate(problems.load(folder / "problem.py")), 1)
    return reference, reference.truth(reference.instance.inputs(5))


ROUNDED = [
    ("return (x.bfloat16() @ self.weight.to(torch.bfloat16)).float()", torch.bfloat16),
    ("return x.half() * self.weight[:16]", torch.float16),
    ("return torch.softmax(x @ self.weight, -1, dtype=torch.bfloat16).to(torch.float32)", torch.bfloat16),
]


@pytest.mark.parametrize(("body", "dtype"), ROUNDED)
def test_a_program_that_rounds_less_is_right(tmp_path: Path, body: str, dtype: torch.dtype) -> None:
    reference, truth = judged(tmp_path, body)
    assert reference.half_inside == dtype
    assert reference.exact_is_fp64
    for output in (truth.own, truth.exact.float()):
        assert isinstance(compare(truth, output, "strict", ""), Agreement)
    assert not isinstance(compare(truth, truth.own * 1.2, "strict", ""), Agreement)
    assert is_sound(reference, truth, "strict")


def test_a_cast_that_the_output_does_not_depend_on_widens_no_tolerance(tmp_path: Path) -> None:
    _, truth = judged(tmp_path, "x.bfloat16(); return x @ self.weight")
    found = compare(truth, truth.own, "strict", "")
    assert isinstance(found, Agreement)
    assert found.tolerance == 1e-5
    assert not isinstance(compare(truth, truth.own * (1 + 1e-4), "strict", ""), Agreement)


@pytest.mark.parametrize(
    "body",
    [
        "return (4 * x).bfloat16().floor().float()",  # rounding decides steps
        "return (x @ self.weight).bfloat16().view(torch.int16).float()",
        "return torch.relu(x @ self.weight)",
        "return (x.float() @ self.weight.float())",
    ],
)
def test_elsewhere_the_own_result_stays_part_of_the_truth(tmp_path: Path, body: str) -> None:
    reference, truth = judged(tmp_path, body)
    assert reference.half_inside is None
    assert isinstance(compare(truth, truth.own, "strict", ""), Agreement)


TOKENS = "return (nn.functional.embedding(x, self.weight).bfloat16() @ self.weight.bfloat16()).float()"


def test_half_precision_inside_a_module_of_integers_is_known(tmp_path: Path) -> None:
    reference, truth = judged(tmp_path, TOKENS, inputs="torch.randint(32, (16,))")
    assert reference.half_inside == torch.bfloat16
    assert reference.exact_is_fp64
    table = reference.model.weight.detach().double()
    assert torch.equal(truth.exact, table[truth.inputs[0]] @ table)
    for output in (truth.own, truth.exact.float()):
        assert isinstance(compare(truth, output, "strict", ""), Agreement)
    assert not isinstance(compare(truth, truth.own * 1.2, "strict", ""), Agreement)


HALF_WEIGHT = "(torch.randn(32, 32) / 6).bfloat16()"


def test_weights_in_half_precision_beside_single_precision_round_inside(tmp_path: Path) -> None:
    reference, truth = judged(tmp_path, "return (x.bfloat16() @ self.weight).float()", weight=HALF_WEIGHT)
    assert reference.half_inside == torch.bfloat16
    assert reference.exact_is_fp64
    for output in (truth.own, truth.exact.float()):
        assert isinstance(compare(truth, output, "strict", ""), Agreement)
    assert not isinstance(compare(truth, truth.own * 1.2, "strict", ""), Agreement)


def test_weights_in_half_precision_that_are_widened_first_widen_no_tolerance(tmp_path: Path) -> None:
    reference, truth = judged(tmp_path, "return x @ self.weight.T.float()", weight=HALF_WEIGHT)
    assert reference.half_inside is None
    assert not isinstance(compare(truth, truth.own * (1 + 1e-4), "strict", ""), Agreement)


def test_a_module_in_half_precision_throughout_has_none_inside(tmp_path: Path) -> None:
    body = "return nn.functional.embedding(x, self.weight) @ self.weight"
    reference, _ = judged(tmp_path, body, inputs="torch.randint(32, (16,))", weight=HALF_WEIGHT)
    assert reference.half_inside is None
    reference, _ = judged(
        tmp_path, "return x @ self.weight", inputs="torch.randn(16, 32).bfloat16()", weight=HALF_WEIGHT
    )
    assert reference.half_inside is None
