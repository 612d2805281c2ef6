"""Changes of weights: a change that the reference has refused once is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kforge import problems
from kforge.evaluation.constants import WEIGHT_CHANGES
from kforge.evaluation.correctness.weight_changes import Handover
from kforge.evaluation.reference.reference import Reference
from kforge.evaluation.transport.wire import TensorRef
from kforge.evaluation.worker_client.client import Fault
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.problems.instance import Instance

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.linear(x) * self.scale

def get_inputs():
    return [torch.rand(8, 4)]

def get_init_inputs():
    return []
"""


class Client:
    """A worker's client whose program has these entries in its state."""

    def __init__(self, instance: Instance, lacks: str = "") -> None:
        self._state = {
            name: TensorRef("float32", tuple(value.shape), tuple(value.stride()), 0)
            for name, value in Reference(instance, 0).state().items()
            if name != lacks
        }

    def construct(self, *_: object) -> dict[str, TensorRef]:
        return self._state

    def set_state(self, state: object) -> None:
        """The program takes all weights."""


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    path = tmp_path / "problem.py"
    path.write_text(SOURCE)
    return instantiate(problems.load(path))


def handover(instance: Instance, **options: Any) -> Handover:
    client: Any = Client(instance, **options)
    return Handover(instance, client, "secret", "strict")


def test_refused_changes_are_tried_again_when_all_weights_change_again(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause: a change that was refused once, for example because of the values drawn then, was never tried again."""
    given = handover(instance)
    accepts = [False]
    monkeypatch.setattr(given, "_takes", lambda *_, **__: accepts[0])
    given.renew()
    assert not given.changed
    accepts[0] = True
    for _ in range(WEIGHT_CHANGES):
        given.renew()
    first = set(given.changed)
    assert first
    for _ in range(4 * WEIGHT_CHANGES):
        given.renew()
    assert given.changed > first


def test_refused_changes_do_not_undo_accepted_ones(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    given = handover(instance)
    tried: list[dict[str, Any]] = []

    def takes_weight_only(state: dict[str, Any], *_: object, **__: object) -> bool:
        tried.append(state)
        before = given.reference.state()
        return bool((state["scale"] > 0).all()) and before.keys() == state.keys()

    monkeypatch.setattr(given, "_takes", takes_weight_only)
    given.renew()
    accepted = set(given.changed)
    assert {change.name for change in accepted} >= {"linear.weight"}
    assert "scale" not in {change.name for change in accepted if change.kind == "wild"}
    for _ in range(WEIGHT_CHANGES):
        given.renew()
    assert accepted <= given.changed
    assert bool((given.reference.state()["scale"] > 0).all())


def test_message_for_a_missing_weight_says_what_must_stay(instance: Instance) -> None:
    with pytest.raises(Fault, match=r"has no scale of the reference's shape.*must keep their names and shapes"):
        handover(instance, lacks="scale")
