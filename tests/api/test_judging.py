"""`kforge.evaluate`, `kforge.profile` and `kforge.forge_suite`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kforge
from kforge.errors import InputError

PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return []
"""
PROGRAM = """\
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x).add_(1)
"""


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM)
    return path


def test_a_program_is_judged_as_a_file_and_as_text(problem: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    said: list[str] = []
    for program in (tmp_path / "program.py", PROGRAM):
        found = kforge.evaluate(problem, program, platform="null", compile_baseline=False, progress=said.append)
        assert isinstance(found, kforge.Evaluation)
        assert isinstance(found.verdict, kforge.Correct)
        assert found.receipt.platform == "null"
    assert any("case" in line for line in said)


def test_a_wrong_program_is_a_verdict_and_no_error(problem: Path) -> None:
    found = kforge.evaluate(problem, PROGRAM.replace("add_(1)", "add_(2)"), platform="null")
    assert found.correct is None
    assert isinstance(found.verdict, kforge.Mismatch)


def test_a_program_is_profiled(problem: Path) -> None:
    page = kforge.profile(problem, PROGRAM, platform="null")
    assert isinstance(page, kforge.Profile)
    assert "aten::" in page.digest_text


def test_every_problem_of_a_folder_is_forged(tmp_path: Path) -> None:
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "one.py").write_text(PROBLEM)
    (tmp_path / "problems" / "broken.py").write_text(PROBLEM.replace("torch.randn(16, 32)", "1 / 0"))
    (tmp_path / "answer.md").write_text(f"```python\n{PROGRAM}```\n")
    options: dict[str, Any] = {"iterations": 1, "compile_baseline": False, "replications": 0, "sanitize": False}
    done = kforge.forge_suite(
        tmp_path / "problems", platform="null", model=f"scripted:{tmp_path / 'answer.md'}", runs=tmp_path / "runs",
        progress=False, **options,
    )  # fmt: skip
    assert isinstance(done, kforge.SuiteResult)
    assert {each.name: each.state for each in done.results} == {"one": "correct", "broken": "broken"}
    assert done.metrics.problems == 2
    assert done.path.parent == tmp_path / "runs"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda file: kforge.evaluate(file, "none.py", platform="null"), "program: no such file: 'none.py'; "),
        (lambda file: kforge.evaluate(file, Path("none.py"), platform="null"), "none.py: no such file"),
        (
            lambda file: kforge.evaluate(file, "x = 1", platform="null"),
            "program: no such file: 'x = 1'; a string without a line break is a file's name, and one with a line break",
        ),
        (lambda file: kforge.evaluate(file, "", platform="null"), "program: no such file: ''; "),
        (lambda file: kforge.evaluate(file, "x" * 5000, platform="null"), f"no such file: '{'x' * 60}…'; "),
        (lambda file: kforge.profile(file, "a\0b", platform="null"), r"no such file: 'a\x00b'; "),
        (lambda _: kforge.evaluate(PROBLEM, PROGRAM, platform="null"), "problem must be the name of a file, not sour"),
        (lambda file: kforge.evaluate(file, PROGRAM, precision="none"), "precision must be one of"),
        (lambda file: kforge.evaluate(file, 3), "program must be a file's name, not int"),
        (lambda file: kforge.evaluate(file, PROGRAM, platfrom="null"), "did you mean 'platform'"),
        (lambda _: kforge.profile("none.py", PROGRAM, platform="null"), "none.py: no such file"),
        (lambda _: kforge.forge_suite("none", platform="null"), "no such file or directory"),
        (lambda _: kforge.forge_suite("core", images=["x.png"]), "images are for one problem"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_one_line(problem: Path, call: Any, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        call(problem)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
