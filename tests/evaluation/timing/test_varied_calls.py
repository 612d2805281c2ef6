"""Calls with other integers, masks and numbers in blocks whose time does not count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kforge import problems
from kforge.evaluation.constants import VARIED_CALLS
from kforge.evaluation.correctness.cases import CaseSource
from kforge.evaluation.timing.varied_calls import VariedCalls
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, mask):
        return (x * mask).sum(-1)

def get_inputs():
    return [torch.randn(8, 64), torch.ones(8, 64, dtype=torch.bool)]

def get_init_inputs():
    return []
"""


class Verified:
    """A correctness check that has judged these cases, of a reference that takes everything, or nothing."""

    def __init__(self, folder: Path, *names: str, takes: bool = True, has_history: bool = False) -> None:
        path = folder / "problem.py"
        path.write_text(SOURCE)
        self.source = CaseSource(instantiate(problems.load(path)), "secret")
        for name in names:
            self.source.learn(next(self.source.draw(0, name)))
        self.reference = self.usable = self
        self.has_history = has_history
        self._takes = takes

    def takes(self, _: Any) -> bool:
        return self._takes


def varied(check: Verified, calls: int) -> tuple[VariedCalls, list[list[Any]]]:
    found, sets = VariedCalls(check), check.source.timed(1, calls)  # type: ignore[arg-type]
    found.put_into(sets)
    return found, sets


def test_some_calls_have_masks_as_verified_and_all_others_those_given(tmp_path: Path) -> None:
    found, sets = varied(Verified(tmp_path, "flipped_masks", "other_integers"), 32)
    assert len(found.places) == VARIED_CALLS
    assert [place for place, (_, mask) in enumerate(sets) if not bool(mask.all())] == sorted(found.places)


def test_at_most_half_of_the_calls_are_varied(tmp_path: Path) -> None:
    assert len(varied(Verified(tmp_path, "flipped_masks"), 2)[0].places) == 1


def test_each_variation_is_used_before_one_is_used_again(tmp_path: Path) -> None:
    check = Verified(tmp_path, "flipped_masks", "other_integers", "skewed_integers")
    found, _ = varied(check, 4)
    assert found.are_left
    found.put_into(check.source.timed(2, 4))
    assert not found.are_left


def test_no_call_is_varied_if_nothing_was_verified_or_the_reference_does_not_take_it(tmp_path: Path) -> None:
    for check in (
        Verified(tmp_path, "as_given #0"),
        Verified(tmp_path, "flipped_masks", takes=False),
        Verified(tmp_path, "flipped_masks", has_history=True),
    ):
        found, sets = varied(check, 8)
        assert not found.places
        assert all(bool(torch.all(mask)) for _, mask in sets)
