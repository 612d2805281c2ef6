"""A MultiKernelBench checkout: categories, and groups of inputs as workloads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.problems.readers.conftest import described, tasks_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODEL = """\
from __future__ import annotations
import json
import os
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)

def get_init_inputs():
    return []
"""
BY_FILE = """
def get_input_groups():
    path = os.path.join(os.path.dirname(__file__), "tanh.json")
    with open(path, "r") as file:
        cases = [json.loads(line) for line in file if line.strip()]
    return [[torch.randn(case["inputs"][0]["shape"])] for case in cases]
"""
BY_LIST = """
def get_input_groups():
    groups = []
    for rows, columns in [(2, 3), (4, 5)]:
        groups.append([torch.randn(rows, columns)])
    return groups
"""
BY_CODE = """
def get_input_groups():
    return [[torch.randn(2 ** power)] for power in range(1, 4)]
"""
CASES = "".join(json.dumps({"inputs": [{"name": "x", "shape": [rows, 7]}]}) + "\n" for rows in (2, 3, 4))


@pytest.fixture
def checkout(tree: Callable[..., Path]) -> Path:
    return tree(
        {
            "reference/activation/tanh.py": MODEL + BY_FILE,
            "reference/activation/tanh.json": CASES,
            "reference/activation/listed.py": MODEL + BY_LIST,
            "reference/reduce/coded.py": MODEL + BY_CODE,
            "reference/reduce/plain.py": MODEL + "\ndef get_inputs():\n    return [torch.randn(6)]\n",
            "reference/reduce/torn.py": "def (\n",
            "utils/helper.py": "raise SystemExit\n",
        }
    )


def test_each_group_of_inputs_is_a_workload(checkout: Path) -> None:
    tasks = tasks_of(checkout)
    shapes = {name: described(task).inputs[0].shape for name, task in tasks.items() if task.problem is not None}
    assert shapes == {
        "activation/listed/group1": (2, 3),
        "activation/listed/group2": (4, 5),
        "activation/tanh/group1": (2, 7),
        "activation/tanh/group2": (3, 7),
        "activation/tanh/group3": (4, 7),
        "reduce/coded": (2,),
        "reduce/plain": (6,),
    }
    assert {task.group for task in tasks.values()} == {"", "activation/listed", "activation/tanh"}
    assert "only its first group of inputs is judged" in tasks["reduce/coded"].notes[0]
    assert "is not valid Python" in str(tasks["reduce/torn"].failure)


def test_a_case_that_is_no_json_fails_alone(checkout: Path) -> None:
    (checkout / "reference/activation/tanh.json").write_text(CASES + "{\n")
    tasks = tasks_of(checkout, only="tanh")
    assert [name for name, task in tasks.items() if task.failure] == ["activation/tanh/group4"]
    assert "tanh.json: is not valid JSON" in str(tasks["activation/tanh/group4"].failure)


@pytest.mark.parametrize(
    "defined",
    [
        "from elsewhere import get_input_groups\n",
        "get_input_groups: object = None\n",
        "if True:\n    def get_input_groups(): return []\n",
    ],
)
def test_groups_that_are_not_written_out_give_the_first_one(tree: Callable[..., Path], defined: str) -> None:
    source = f"{defined}class Model: pass\ndef get_init_inputs(): return []\n"
    (task,) = tasks_of(tree({"reference/a/x.py": source})).values()
    assert task.failure is None
    assert "only its first group" in task.notes[0]
