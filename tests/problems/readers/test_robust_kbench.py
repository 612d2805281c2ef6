"""A robust-kbench checkout: settings by keyword, and sweeps as held-out workloads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.problems.readers.conftest import described, tasks_of

from kforge.problems import open_suite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FORWARD = """\
import torch

def forward_fn(x, weight):
    return x * weight

class Model(torch.nn.Module):
    def __init__(self, features, init_method="ones"):
        super().__init__()
        make = torch.ones if init_method == "ones" else torch.randn
        self.weight = torch.nn.Parameter(make(features))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight)

def get_inputs(batch_size, features):
    return [torch.randn(batch_size, features)]

input_names = ["x"]
"""
CONFIG = {
    "single_input_configs": [{"batch_size": 2}],
    "single_init_configs": [{"init_method": "ones"}],
    "single_shared_configs": [{"features": 4}],
    "multi_input_configs": [{"batch_size": 2}, {"batch_size": 3}],
    "multi_init_configs": [{"init_method": "ones"}, {"init_method": "normal"}],
    "multi_shared_configs": [{"features": 4}],
}


@pytest.fixture
def checkout(tree: Callable[..., Path]) -> Path:
    return tree(
        {
            "tasks/scale/func_forward.py": FORWARD,
            "tasks/scale/config_forward.json": json.dumps(CONFIG),
            "tasks/other/func_backward.py": "",
            "robust_kbench/__init__.py": "raise SystemExit\n",
        }
    )


def test_the_single_settings_are_timed_and_the_sweep_is_held_out(checkout: Path) -> None:
    (timed,) = tasks_of(checkout).values()
    assert timed.name == "scale"
    workload = described(timed)
    assert (workload.inputs[0].shape, workload.parameters[0].shape) == ((2, 4), (4,))
    swept = tasks_of(checkout, "held_out")
    assert list(swept) == [
        "scale/2-init_method=ones-features=4-batch_size=3",
        "scale/3-init_method=normal-features=4-batch_size=2",
        "scale/4-init_method=normal-features=4-batch_size=3",
    ]
    assert [described(task).inputs[0].shape for task in swept.values()] == [(3, 4), (2, 4), (3, 4)]
    assert len(tasks_of(checkout, "all")) == 4


def test_backward_problems_are_left_out_with_the_reason(checkout: Path) -> None:
    assert open_suite(str(checkout)).remarks == [
        "left out 1 of 2 problems: problems of a backward pass alone are not read"
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [("{", "is not valid JSON"), ({"single_input_configs": [3]}, "must be lists of objects"), ("[]", "JSON object")],
)
def test_a_bad_config_fails_that_problem_alone(checkout: Path, config: Any, said: str) -> None:
    text = config if isinstance(config, str) else json.dumps(config)
    (checkout / "tasks/scale/config_forward.json").write_text(text)
    (task,) = tasks_of(checkout).values()
    assert said in str(task.failure)


@pytest.mark.timeout(60)
def test_a_product_of_many_settings_is_refused_before_it_is_made(tree: Callable[..., Path]) -> None:
    many = [{"a": index} for index in range(3000)]
    config = {f"single_{part}_configs": many for part in ("init", "input", "shared")}
    folder = tree({"tasks/scale/func_forward.py": FORWARD, "tasks/scale/config_forward.json": json.dumps(config)})
    (task,) = tasks_of(folder).values()
    assert "have 27000000000 combinations, more than 4096" in str(task.failure)
