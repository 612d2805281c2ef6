"""Places of a state that change in some entries and not in others, and rows of tables that the next call uses."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import torch

from kforge import problems
from kforge.evaluation.reference.changed_places import KINDS, changing_buffers, group, with_changed_places
from kforge.evaluation.reference.reference import Reference
from kforge.evaluation.reference.rows_in_use import rows_in_use, tables
from kforge.evaluation.reference.weights import far_changes, structured_buffers, with_changes
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

ROUND = range(len(KINDS))
SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def reference_of(folder: Path, made: str, result: str = "x", inputs: str = "torch.randn(8)") -> Reference:
    path = folder / "problem.py"
    path.write_text(SOURCE.format(made=made, result=result, inputs=inputs))
    return Reference(instantiate(problems.load(path)), 1)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("parameters", "buffers"), [("ab", ""), ("abcde", ""), ("ab", "c"), ("a", "bcd"), ("", "ab")])
def test_what_is_made_of_two_entries_is_seen_to_be_old_if_only_one_is_watched(
    parameters: str, buffers: str, seed: int
) -> None:
    groups = [set(group([*parameters], [*buffers], (), number, seed)) for number in ROUND]
    for watched in parameters + buffers:
        assert any(watched not in each for each in groups)
        assert any(watched in each for each in groups)
    assert sum(len(each) == 1 for each in groups) >= 2
    if parameters and buffers:
        assert set(parameters) in groups
        assert set(buffers) in groups


def test_a_single_entry_changes_each_time() -> None:
    assert all(group(["a"], [], (), number, 3) == ["a"] for number in ROUND)


def test_a_table_that_is_looked_up_changes_alone() -> None:
    for seed in range(20):
        assert any(group([*"abcdef"], [], {"d"}, number, seed) == ["d"] for number in ROUND)


BUFFERS = "; ".join(
    f"self.register_buffer({name!r}, {made})"
    for name, made in {
        "table": "torch.randn(6, 4)",
        "mask": "(torch.rand(32, 8) < 0.5).float()",
        "kept": "torch.rand(32) < 0.5",
        "codes": "torch.randint(0, 9, (32, 4))",
        "order": "torch.randperm(32)",
        "edges": "torch.linspace(1, 5, 9)",
        "causal": "torch.ones(5, 5).tril()",
        "bias": "torch.full((5, 5), float('-inf')).triu(1)",
        "calls": "torch.zeros((), dtype=torch.long)",
    }.items()
)


def test_buffers_change_within_what_draws_may_give(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, BUFFERS)
    instance, model = reference.instance, reference.model
    names = changing_buffers(instance, model)
    # numbers in order, fixed integers, offsets and infinities stay
    assert set(names) == {"table", "mask", "kept", "codes", "causal"}
    before = model.state_dict()
    for number in ROUND:
        changed = with_changed_places(instance, model, names, number, 7 + number)
        assert all(not torch.equal(changed[name], before[name]) for name in names)
        for name in ("mask", "kept", "codes"):
            assert sorted(changed[name].tolist()) == sorted(before[name].tolist())
        assert torch.equal(changed["causal"] == 0, before["causal"] == 0)


TABLE = "self.table = nn.Parameter(torch.randn(4096, 4)); self.weight = nn.Parameter(torch.randn(1024, 8))"
COMPUTED = "(self.table[(x.sigmoid() * 4095).long()].sum(), nn.functional.linear(x, self.weight))"


def test_rows_change_that_the_next_call_looks_up_by_computed_indices(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, TABLE, COMPUTED)
    inputs = reference.instance.inputs(5)
    assert tables(reference, inputs) == {"table"}
    used = rows_in_use(reference, inputs)
    assert used["table"].tolist() == sorted(set((inputs[0].sigmoid() * 4095).long().tolist()))
    for number in ROUND:
        state = with_changed_places(reference.instance, reference.model, ["table"], number, 3, {"table"}, used)
        changed = (state["table"] != reference.model.table).any(1).nonzero().flatten()
        assert 0 < len(changed) <= 4
        assert set(changed.tolist()) <= set(used["table"].tolist())


def test_where_these_rows_are_not_known_a_share_of_all_changes(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, TABLE, COMPUTED)
    sizes = set()
    for seed in range(20):
        state = with_changed_places(reference.instance, reference.model, ["table"], 0, seed, {"table"})
        sizes.add(int((state["table"] != reference.model.table).any(1).sum()))
    assert sizes <= {2**power for power in range(3, 10)}
    assert len(sizes) > 2


def test_rows_in_use_are_unknown_where_there_is_no_gradient(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, TABLE, "self.table.detach()[x.long()]")
    assert rows_in_use(reference, reference.instance.inputs(5)) == {}
    assert tables(reference, reference.instance.inputs(5)) == frozenset()


BLOCKS = "self.register_buffer('mixing', torch.block_diag(torch.{made}, torch.{made}))"


def test_zeros_and_signs_of_a_drawn_buffer_change(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, BLOCKS.format(made="rand(8, 8)"))
    instance, model, state = reference.instance, reference.model, reference.state()
    wild = [each for each in far_changes(instance, model, state) if each.kind == "wild_buffer"]
    assert [each.name for each in wild] == ["mixing"]
    changed = with_changes(state, wild, instance, 5)["mixing"]
    assert bool((changed[:8, 8:] != 0).any())
    assert bool((changed < 0).any())
    assert structured_buffers(instance, model) == {"mixing": False}


def test_zeros_of_a_fixed_buffer_stay_and_are_known(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, BLOCKS.format(made="full((8, 8), 0.125)"))
    instance, model, state = reference.instance, reference.model, reference.state()
    changed = with_changes(state, far_changes(instance, model, state), instance, 5)["mixing"]
    assert torch.equal(changed == 0, state["mixing"] == 0)
    assert not torch.equal(changed, state["mixing"])
    assert structured_buffers(instance, model) == {"mixing": True}


def test_edges_of_bins_stay_in_order(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, "self.register_buffer('edges', torch.linspace(9, 10, 50))")
    state = reference.state()
    changes = far_changes(reference.instance, reference.model, state)
    changed = with_changes(state, changes, reference.instance, 5)["edges"].tolist()
    assert changed != state["edges"].tolist()
    assert all(one <= other for one, other in pairwise(changed))
