"""The suite `core`: every problem loads, runs, is deterministic and can be judged, at every workload.

That all of them run and can be judged takes longest and is for `make test-all`. `make test` does it for two of each
family, and sees of all that their shapes fit together.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby, islice
from typing import TYPE_CHECKING

import pytest
import torch

from kforge.evaluation.referee.problem_lint import lint
from kforge.problems import open_suite
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from kforge.problems import Task

CORE = open_suite("core")
WORKLOADS = {
    workload: {task.name: task for task in CORE.tasks(workload)} for workload in ("small", "large", "held_out")
}
NAMES = sorted(WORKLOADS["small"])
OF_EACH_FAMILY = [
    name for _, family in groupby(NAMES, lambda name: name.partition("/")[0]) for name in islice(family, 2)
]
ONE_OPERATOR = [name for name in NAMES if name.startswith("elementwise/single_")]

UNHEARD = {"too_quick_to_time"}
"""How long a call takes is not asserted."""


def task(name: str, workload: str = "small") -> Task:
    return WORKLOADS[workload][name]


of_each_family = pytest.mark.parametrize(
    "name",
    [name if name in OF_EACH_FAMILY else pytest.param(name, marks=pytest.mark.volume) for name in NAMES],
)
"""All problems in `make test-all`, and two of each family in `make test`."""


def test_the_mix_follows_where_speed_is_left() -> None:
    families = Counter(name.partition("/")[0] for name in NAMES)
    assert len(NAMES) >= 80
    assert families["algebra"] >= 8
    assert len(ONE_OPERATOR) <= len(NAMES) / 10
    products = [
        name for name in NAMES if any(way in CORE_SOURCE[name] for way in (" @ ", "bmm", "matmul", "nn.Linear"))
    ]
    assert families["matmul"] + families["matmul_tail"] >= len(NAMES) / 6
    assert len(products) >= len(NAMES) / 4


@of_each_family
def test_a_problem_runs_and_can_be_judged(name: str) -> None:
    problem = task(name).problem
    assert problem is not None, task(name).failure
    instance = instantiate(problem)
    assert instance.describe().labels == (), "it is random, or changes its state or its inputs"
    assert set(lint(instance)) - UNHEARD == set(CORE.expected_labels(name))


@of_each_family
def test_a_problem_follows_its_constants_to_held_out_shapes(name: str) -> None:
    problem = task(name, "held_out").problem
    assert problem is not None, task(name, "held_out").failure
    workload = instantiate(problem).describe()
    assert workload.labels == ()
    small = task(name).problem
    assert small is not None
    assert workload.inputs != instantiate(small).describe().inputs


@pytest.mark.parametrize("name", NAMES)
def test_the_large_workload_has_shapes_that_fit_together(name: str) -> None:
    problem = task(name, "large").problem
    assert problem is not None, task(name, "large").failure
    namespace: dict[str, object] = {}
    exec(compile(problem.source, name, "exec"), namespace)
    with torch.device("meta"), torch.no_grad():  # shapes without memory
        inputs = namespace["get_inputs"]()  # type: ignore[operator]
        model = namespace["Model"](*namespace["get_init_inputs"]())  # type: ignore[operator]
        model(*inputs)
    assert sum(tensor.nbytes for tensor in inputs) <= 1 << 30, "more than an evaluation can hold several sets of"


@pytest.mark.parametrize("name", NAMES)
def test_every_reason_is_a_sentence(name: str) -> None:
    for reason in CORE.expected_labels(name).values():
        assert len(reason.split()) >= 4


CORE_SOURCE = {name: problem.source for name in NAMES if (problem := task(name).problem) is not None}
