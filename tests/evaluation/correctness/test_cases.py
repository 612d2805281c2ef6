"""Which inputs cases and timed calls have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kforge import problems
from kforge.evaluation.constants import WEIGHT_CHANGES
from kforge.evaluation.correctness.cases import CaseSource
from kforge.problems.inputs.special_floats import SPECIAL_FLOATS
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, {names}):
        {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def source_of(folder: Path, inputs: str, body: str, names: str = "x") -> CaseSource:
    path = folder / "problem.py"
    path.write_text(SOURCE.format(names=names, body=body, inputs=inputs))
    return CaseSource(instantiate(problems.load(path)), "secret")


def test_odd_sets_of_the_last_timed_blocks_are_drawn_again(tmp_path: Path) -> None:
    source = source_of(tmp_path, "torch.randn(16, 16)", "return x + 1")
    source.timed(0, 32)
    assert not list(source.last_odd_sets())
    source.odd_rows = "wild"
    sets = source.timed(1, 32)
    plain = source.instance.inputs  # the same draws without odd rows have no element beyond ten
    assert float(plain(0)[0].abs().max()) < 10
    again = list(source.last_odd_sets())
    assert again
    assert all(any(torch.equal(odd[0], each[0]) for each in [*sets, *source.timed(0, 32)]) for odd in again)
    assert len(again) < 64


def test_timed_inputs_are_given_back_without_their_odd_rows(tmp_path: Path) -> None:
    source = source_of(tmp_path, "torch.randn(16, 16)", "return x + 1")
    source.odd_rows = "wild"
    sets = source.timed(0, 32)
    plain = [source.without_odd_rows(inputs) for inputs in sets]
    assert any(each is not None for each in plain)
    assert any(each is None for each in plain)
    for inputs, before in zip(sets, plain, strict=True):
        if before is not None:
            same_rows = (inputs[0] == before[0]).all(dim=1)
            assert 0 < int((~same_rows).sum()) < len(same_rows)
            assert float(before[0].abs().max()) < 10
    assert source.without_odd_rows([torch.zeros(16, 16)]) is None


def test_a_case_is_kept_if_only_a_python_number_became_special(tmp_path: Path) -> None:
    body = "return x if scale == -1.0 else x * scale"
    source = source_of(tmp_path, "torch.randn(16, 16), 2.0", body, "x, scale")
    scales = {case.inputs[1] for state in range(10) for case in source.draw(state, SPECIAL_FLOATS)}
    assert -1.0 in scales
    assert 2.0 not in scales, "cases that change nothing are left out"


def test_each_change_of_weights_but_the_first_is_followed_by_inputs_as_given(tmp_path: Path) -> None:
    source = source_of(tmp_path, "torch.randn(16, 16)", "return x + 1")
    for state in range(20):
        names, changes = source.order(state)
        assert len(changes) == len(set(changes)) == WEIGHT_CHANGES
        assert names[0] == "as_given #0"
        assert changes[0] > 1  # a call that is not the first one has the first weights
        assert [names[change] for change in changes[1:]] == [f"as_given #{number}" for number in range(1, 6)]
        assert len(names) == len(set(names))
