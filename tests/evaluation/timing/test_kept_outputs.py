"""Outputs that are kept are a sample of the whole race, and one that changes is found."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge.evaluation import constants
from kforge.evaluation.timing.kept_outputs import KeptOutputs, narrowed, part_of, slots_for
from kforge.evaluation.transport.shared_memory import address, tensor_at
from kforge.evaluation.worker_client.client import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.transport.wire import TensorRef

MIB = 1 << 20


class Side:
    """A worker client, and its timed block of one call. The outputs lie in one buffer, one after another."""

    LENGTH = 16

    def __init__(self, calls: int) -> None:
        self.memory = torch.arange(float(calls * self.LENGTH))
        self.access = SimpleNamespace(saves=False)
        self.has_copies = False
        self.block = self
        self.call = 0
        self.slots: list[tuple[int, int]] = []

    def written(self) -> torch.Tensor:
        return self.memory[self.call * self.LENGTH :][: self.LENGTH]

    def places(self) -> list[Any]:
        return [address(self.written())]

    def output(self, index: int) -> Any:
        assert index == 0
        return self.written()

    def keep(self, slot: int, index: int, places: list[TensorRef]) -> Callable[[], Any]:
        assert index == 0
        self.slots.append((slot, self.call))
        flat = self.memory.view(torch.uint8)
        return lambda: [tensor_at(flat, ref, ref.offset - flat.data_ptr()) for ref in places]


def race(calls: int, seed: int = 0, spoiled: Callable[[Side], None] = lambda _: None) -> tuple[Side, Side]:
    """Offer one call after another. `spoiled` may write to the candidate's memory after each."""
    baseline, candidate = Side(calls), Side(calls)
    kept = KeptOutputs(baseline, candidate, random.Random(seed))  # type: ignore[arg-type]
    for call in range(calls):
        baseline.call = candidate.call = call
        kept.offer(0, {0})
        spoiled(candidate)
    kept.check()
    assert len(kept.places) == min(calls, constants.KEPT_OUTPUTS)
    return baseline, candidate


def test_both_sides_keep_the_same_calls() -> None:
    baseline, candidate = race(200)
    assert baseline.slots == candidate.slots


def test_late_calls_are_kept_as_well_as_early_ones() -> None:
    last = [call for seed in range(40) for slot, call in dict(race(200, seed)[1].slots).items() if slot < 4]
    assert sum(call >= 100 for call in last) > len(last) // 4
    assert sum(call < 100 for call in last) > len(last) // 4


@pytest.mark.parametrize("seed", range(10))
def test_the_last_calls_are_always_kept(seed: int) -> None:
    calls = list(dict(race(200, seed)[1].slots).values())
    assert 199 in calls
    assert sum(call >= 190 for call in calls) >= 3


@pytest.mark.parametrize("begin", [0, 20, 100])
def test_a_program_that_writes_to_old_outputs_from_some_call_on_is_found(begin: int) -> None:
    def spoiled(side: Side) -> None:
        if side.call >= max(begin, 3):
            side.memory[(side.call - 3) * side.LENGTH :][: side.LENGTH] += 1

    with pytest.raises(Fault, match="used again"):
        race(200, spoiled=spoiled)


def test_outputs_that_are_let_go_are_checked_before() -> None:
    """A program that restores what it overwrote must do so for as long as the race lasts."""
    candidate = Side(400)
    kept = KeptOutputs(Side(400), candidate, random.Random(1))  # type: ignore[arg-type]
    kept.offer(0, {0})
    candidate.memory[0] += 1

    def go_on() -> None:
        for candidate.call in range(1, 400):
            kept.offer(0, {0})

    with pytest.raises(Fault, match="used again"):
        go_on()


@pytest.mark.parametrize(
    ("size", "saves", "slots"),
    [
        (0, False, 0),
        (4, False, 8),
        (40 * MIB, False, 6),
        (256 * MIB, True, 1),
        (272 * MIB, False, 1),
        (272 * MIB, True, 0),
        (513 * MIB, False, 0),
    ],
)
def test_how_many_are_kept_depends_on_their_size(size: int, saves: bool, slots: int) -> None:
    assert slots_for(size, saves=saves) == slots


@pytest.mark.parametrize(
    "tensor",
    [torch.arange(60.0).view(3, 4, 5), torch.arange(60.0).view(3, 4, 5).permute(2, 0, 1), torch.tensor(3.0)],
    ids=["rows", "turned", "one number"],
)
@pytest.mark.parametrize("most", [4, 40, 100, 1000])
def test_a_part_of_a_tensor_is_read_where_it_lies(
    monkeypatch: pytest.MonkeyPatch, tensor: torch.Tensor, most: int
) -> None:
    monkeypatch.setattr(constants, "KEPT_PART", most)
    flat, chance, firsts = tensor.untyped_storage().data_ptr(), random.Random(3), set()
    memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    for _ in range(40):
        part = part_of(address(tensor), chance)
        ref = narrowed(address(tensor), part)
        assert torch.equal(tensor_at(memory, ref, ref.offset - flat), tensor[part])
        assert tensor[part].nbytes <= max(most, 4)
        firsts.add(ref.offset)
    assert len(firsts) > 1 or tensor.nbytes <= most
