"""Problem lint: each finding on a problem that has it, and none on one that is sound."""

from pathlib import Path

import pytest

from kforge import problems
from kforge.evaluation.referee.problem_lint import lint, voids_speed
from kforge.problems.instance import instantiate

TEMPLATE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.randn(256, 64)]

def get_init_inputs():
    return []
"""

UNIT = "nn.functional.normalize(torch.randn(256, 64), dim=-1)"
CHECKED = """\
    def checked(self, x):
        if not torch.allclose(x.norm(dim=-1), torch.ones(1, dtype=x.dtype), rtol=0, atol=1e-6):
            raise ValueError("not of length one")
        return x

    def forward"""
CONSTANT = {"ignores_inputs", "output_barely_varies", "ignores_weights", "precision_blind", "constant_passes"}


@pytest.mark.parametrize(
    ("forward", "findings"),
    [
        ("x @ self.weight", set()),
        ("x * 2", {"ignores_weights"}),
        ("x * self.scale", set()),
        ("(x @ self.weight) * 1e-6 + 1", {"output_barely_varies", "precision_blind"}),
        ("torch.zeros_like(x) + self.weight.sum()", {"ignores_inputs", "output_barely_varies", "constant_passes"}),
        ("x @ self.weight * 0 + 5.0", CONSTANT),
        ("(x @ self.weight > 0).sum(dim=-1)", set()),
        ("(x @ self.weight).argmax(-1)", set()),
        ("(x @ self.weight).square().mean()", set()),
        ("x + 0 * (x @ self.weight)", {"ignores_weights", "input_passes"}),
        # torch itself has no digit of the difference: nothing can be judged
        (
            "(5e-5 * torch.tanh(x @ self.weight) + 1e3 * self.scale) - 1e3 * self.scale",
            {"constant_passes", "precision_blind"},
        ),
        # as given a constant is nearly right, and on other distributions it is not
        ("torch.sigmoid(12 + 0.01 * x @ self.weight)", {"output_barely_varies", "precision_blind"}),
    ],
)
def test_findings(tmp_path: Path, forward: str, findings: set[str]) -> None:
    path = tmp_path / "problem.py"
    path.write_text(TEMPLATE.format(forward=forward))
    assert set(lint(instantiate(problems.load(path)))) - {"too_quick_to_time"} == findings


def test_a_reference_that_checks_its_inputs_closely_can_be_judged(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    source = TEMPLATE.format(forward="self.checked(x) @ self.weight").replace("torch.randn(256, 64)", UNIT)
    path.write_text(source.replace("    def forward", CHECKED))
    assert lint(instantiate(problems.load(path))) == ()


def test_a_trivial_call_is_too_quick(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(TEMPLATE.format(forward="x.relu()").replace("256, 64", "2, 2"))
    instance = instantiate(problems.load(path))
    assert any("too_quick_to_time" in lint(instance) for _ in range(5)), "whatever else the machine does"


@pytest.mark.parametrize("name", ["softmax_scale", "rms_norm_gelu", "linear_sum"])
def test_our_examples_are_sound(root: Path, name: str) -> None:
    assert lint(instantiate(problems.load(root / "examples" / name / "problem.py"))) == ()


def test_no_speedup_is_claimed_where_a_constant_passes() -> None:
    assert "constant passes" in (voids_speed(["too_quick_to_time", "constant_passes"]) or "")
    assert "input" in (voids_speed(["input_passes"]) or "")
    assert voids_speed(["precision_blind", "ignores_weights"]) is None
