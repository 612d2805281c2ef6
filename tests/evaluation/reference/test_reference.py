"""The trusted side: random numbers under a seed, and modules that keep something from one call to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge.errors import ProblemError
from kforge.evaluation.reference.history import Moment
from kforge.evaluation.reference.reference import Reference
from kforge.problems import load
from kforge.problems.instance import Instance, instantiate

if TYPE_CHECKING:
    from pathlib import Path

MASK = "self.mask = torch.ones(16) if self.mask is None else self.mask"


def instance_of(folder: Path, init: str, *forward: str) -> Instance:
    lines = "\n        ".join(forward)
    path = folder / "problem.py"
    path.write_text(f"""
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        {lines}
def get_inputs():
    return [torch.randn(8, 16)]
def get_init_inputs():
    return []
""")
    return instantiate(load(path))


def inputs(seed: int = 0) -> list[Any]:
    return [torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))]


def test_a_random_module_draws_the_numbers_of_its_seed(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "pass", "return nn.functional.dropout(x, 0.5)")
    instance.describe()
    reference = Reference(instance, 1)
    one, again = (reference.truth(inputs()) for _ in range(2))
    assert torch.equal(one.own, again.own)
    assert reference.exact_is_fp64
    assert torch.equal(one.exact == 0, one.own == 0)
    before = torch.get_rng_state()
    reference.seed = 7
    assert not torch.equal(reference.truth(inputs()).own, one.own)
    assert torch.equal(before, torch.get_rng_state())


def test_where_double_precision_draws_other_numbers_the_own_result_is_the_truth(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "pass", "return x * torch.rand_like(x)")
    instance.describe()
    reference = Reference(instance, 1)
    truth = reference.truth(inputs())
    assert not reference.exact_is_fp64
    assert torch.equal(truth.exact, truth.own)


@pytest.mark.parametrize(
    ("init", "forward", "has_history"),
    [
        ("self.weight = nn.Parameter(torch.ones(16))", ("return x * self.weight",), False),
        ("self.mask = None", (MASK, "return x * self.mask"), False),
        ("self.weight = nn.Parameter(torch.ones(16))", ("self.weight.sub_(0.1 * x.mean(0))", "return x + 0"), True),
        ("self.norm = nn.BatchNorm1d(16)", ("return self.norm(x)",), True),
        ("self.seen = []", ("self.seen.append(x.mean())", "return x * len(self.seen)"), True),
        ("self.cache = torch.zeros(16)", ("self.cache += x.mean(0)", "return x + self.cache"), True),
        ("self.calls = 0", ("self.calls += 1", "return x * self.calls"), True),
    ],
)  # fmt: skip
def test_a_module_that_a_call_changes_is_known(
    tmp_path: Path, init: str, forward: tuple[str, ...], has_history: bool
) -> None:
    reference = Reference(instance_of(tmp_path, init, *forward), 1)
    for seed in range(6):
        truth = reference.truth(inputs(seed))
        # both models have made the same calls
        assert torch.allclose(truth.exact.float(), truth.own, atol=1e-4)
    assert reference.has_history is has_history


def test_a_module_is_set_back_to_an_earlier_moment(tmp_path: Path) -> None:
    init = "self.seen, self.norm = [torch.ones(16)], nn.BatchNorm1d(16)"
    instance = instance_of(tmp_path, init, "self.seen.append(x.mean(0))", "return self.norm(x) + self.seen[-2]")
    reference = Reference(instance, 1)
    reference.truth(inputs(1))
    moment = Moment(reference.model, reference.exact_model, parameters=False)
    one = reference.truth(inputs(2)).own
    reference.truth(inputs(3))
    moment.restore()
    assert torch.equal(reference.truth(inputs(2)).own, one)
    assert int(reference.state()["norm.num_batches_tracked"]) == 2


def test_a_parameter_that_calls_change_is_set_back(tmp_path: Path) -> None:
    init = "self.weight = nn.Parameter(torch.ones(16))"
    reference = Reference(instance_of(tmp_path, init, "self.weight.mul_(2)", "return x * self.weight"), 1)
    reference.truth(inputs(1))
    assert reference.updates_parameters
    moment = Moment(reference.model, reference.exact_model, parameters=True)
    one = reference.truth(inputs(2))
    moment.restore()
    again = reference.truth(inputs(2))
    assert torch.equal(one.own, again.own)
    assert torch.equal(one.exact, again.exact)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "uint32"])
def test_a_dtype_that_cannot_be_judged_is_the_problems_fault(tmp_path: Path, dtype: str) -> None:
    instance = instance_of(tmp_path, "pass", f"return x.abs().to(torch.{dtype})")
    with pytest.raises(ProblemError, match=f"an output has dtype {dtype}, which kforge does not judge"):
        Reference(instance, 0).truth(instance.inputs(0))


def test_raises_problem_error_for_a_key_that_no_message_can_contain(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "pass", 'return {"sum": x.sum(), "parts": [{0.5: x}]}')
    with pytest.raises(ProblemError, match=r"an output is a dict with the key 0\.5, which kforge does not judge"):
        Reference(instance, 0).truth(instance.inputs(0))


def test_own_result_of_copies_is_the_truth_where_the_copy_in_double_fails(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "pass", "return x @ torch.eye(x.shape[1], dtype=torch.float32)")
    found = Reference(instance, 0).truth_of_copies(instance.inputs(0))
    assert found is not None
    assert found.exact is found.own


@pytest.mark.parametrize(
    ("output", "shared"),
    [
        ("x + 1", set()),
        ("(x + 1).expand(2, -1, -1)", set()),
        ("(x + 1)[:, :-1]", set()),
        ("(x + 1).chunk(2)", set()),
        ("(x + 1, x, x[2:])", set()),  # views of inputs are known by each call
        ("(x + 1, self.weight, self.weight[2:])", {1, 2}),
        ("(x + 1, self.table, self.table[2:], self.table.expand(3, 4))", {1, 2, 3}),
    ],
)
def test_outputs_whose_memory_the_module_keeps_are_known(tmp_path: Path, output: str, shared: set[int]) -> None:
    """Cause: expanded outputs, and parts of a tensor of the call, counted as shared and were never written to."""
    init = "self.weight = nn.Parameter(torch.ones(4)); self.table = torch.ones(4)"
    reference = Reference(instance_of(tmp_path, init, f"return {output}"), 1)
    reference.truth(inputs())
    assert reference.shared_outputs == shared
