"""A KernelBench checkout: levels, numbers, and level 4, which is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.problems.readers.conftest import described, tasks_of

from kforge.errors import ProblemError
from kforge.problems import ProblemChoice, open_suite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROBLEM = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(4, {columns})]

def get_init_inputs():
    return []
"""


@pytest.fixture
def checkout(tree: Callable[..., Path]) -> Path:
    files = {
        f"KernelBench/level{level}/{number}_Kernel.py": PROBLEM.format(columns=number)
        for level in (1, 2, 4)
        for number in (1, 2, 10)
    }
    return tree(files | {"src/eval.py": "raise SystemExit\n", "KernelBench/level1/notes.py": "x = 1\n"})


def test_levels_are_families_and_numbers_are_in_order(checkout: Path) -> None:
    tasks = tasks_of(checkout)
    names = [f"level{level}/{number}_Kernel" for level in (1, 2) for number in (1, 2, 10)]
    assert list(tasks) == names
    assert {task.family for task in tasks.values()} == {"level1", "level2"}
    assert described(tasks["level2/10_Kernel"]).inputs[0].shape == (4, 10)


def test_the_folder_of_the_problems_reads_like_the_checkout(checkout: Path) -> None:
    assert list(tasks_of(checkout / "KernelBench")) == list(tasks_of(checkout))


def test_level_4_is_refused_with_the_reason(checkout: Path) -> None:
    assert open_suite(str(checkout)).remarks == [
        "left out 3 of 9 problems: level 4 is not read: its problems download a pretrained model, "
        "and kforge judges without a network"
    ]
    assert open_suite(str(checkout), ProblemChoice(levels=(1,))).remarks == []
    with pytest.raises(ProblemError, match="suite theirs: level 4 is not read"):
        open_suite(str(checkout), ProblemChoice(levels=(4,))).tasks()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"levels": "2"}, ["level2/1_Kernel", "level2/2_Kernel", "level2/10_Kernel"]),
        ({"numbers": "2-10"}, ["level1/2_Kernel", "level1/10_Kernel", "level2/2_Kernel", "level2/10_Kernel"]),
        ({"levels": "1,2", "numbers": "1,10-12", "tags": "level1"}, ["level1/1_Kernel", "level1/10_Kernel"]),
    ],
)
def test_levels_and_numbers_narrow_the_choice(checkout: Path, options: dict[str, str], names: list[str]) -> None:
    choice = ProblemChoice.parsed(**options)  # type: ignore[arg-type]
    assert [task.name for task in open_suite(str(checkout), choice).tasks()] == names


def test_broken_files_are_failures_of_their_own(checkout: Path) -> None:
    level = checkout / "KernelBench" / "level1"
    (level / "3_NoInputs.py").write_text("class Model: ...\ndef get_init_inputs(): ...\n")
    (level / "4_Torn.py").write_text("def (\n")
    failures = {name: task.failure for name, task in tasks_of(checkout).items() if task.problem is None}
    assert list(failures) == ["level1/3_NoInputs", "level1/4_Torn"]
    assert "does not define get_inputs at module level" in str(failures["level1/3_NoInputs"])
    assert "is not valid Python: line 1" in str(failures["level1/4_Torn"])


def test_a_reference_that_draws_random_numbers_keeps_its_label(checkout: Path) -> None:
    dropout = PROBLEM.format(columns=8).replace("torch.relu(x)", "torch.nn.functional.dropout(x)")
    (checkout / "KernelBench" / "level1" / "5_Dropout.py").write_text(dropout)
    assert described(tasks_of(checkout, only="Dropout")["level1/5_Dropout"]).labels == ("random",)
