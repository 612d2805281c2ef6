"""Keeps outputs of timed calls, as a caller might, and checks later that no call has written to them. (torch)

Both workers keep their outputs of the same calls, because the position of memory affects a program's speed
(docs/decisions/012). One call of every block is offered. It gets an empty slot while there are some. After that, half
of the slots hold a random sample of the whole race (reservoir sampling), which finds memory that is reused after many
calls. The other half hold calls of the last blocks, which finds memory that is reused soon.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from kforge.evaluation import constants
from kforge.evaluation.transport.aliases import tensor_leaves
from kforge.evaluation.transport.shared_memory import DESCRIBED_ONLY, bytes_named
from kforge.evaluation.worker_client.client import Fault
from kforge.problems.tensors import cloned, same
from kforge.records import Rejected

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from kforge.evaluation.transport.wire import TensorRef
    from kforge.evaluation.worker_client.client import WorkerClient


class _Kept(NamedTuple):
    """The kept outputs of one call."""

    places: list[TensorRef]
    """Where the outputs lie, one entry for each output of a call. No later output may lie there."""
    then: list[torch.Tensor]
    """Copies of parts of the outputs, made when they were kept."""
    read: Callable[[], Any]
    """Reads the same parts as they are now."""


class KeptOutputs:
    """Outputs of some timed calls of the candidate, which must stay unchanged while they are kept."""

    def __init__(self, baseline: WorkerClient, candidate: WorkerClient, chance: random.Random) -> None:
        self._baseline = baseline
        self._candidate = candidate
        self._chance = chance
        self._kept: list[_Kept] = []
        self._offered = 0

    @property
    def places(self) -> list[list[TensorRef]]:
        """Where the outputs of each kept call lie."""
        return [kept.places for kept in self._kept]

    def offer(self, index: int, own: set[int]) -> None:
        """Keep outputs of call `index` of the last block if a slot is chosen for them, on both sides.

        `own` are the numbers of its outputs that are not views.

        Raises Fault if the outputs that it replaces have changed.
        """
        places = tensor_leaves(self._candidate.block.places()[index])
        size = sum(bytes_named(places[number]) for number in own)
        slots = slots_for(size, saves=self._candidate.access.saves)
        if not slots:
            return
        slot = self._slot_among(slots)
        if slot is None:
            return
        if slot < len(self._kept):
            _must_be_unchanged(self._kept[slot])
        parts = {number: part_of(places[number], self._chance) for number in sorted(own)}
        read = self._candidate.block.keep(
            slot, index, [narrowed(places[number], part) for number, part in parts.items()]
        )
        self._baseline.block.keep(slot, index, [])
        if self._candidate.block.has_copies:  # later calls of the same block may have written to it
            output = tensor_leaves(self._candidate.block.output(index))
            then = [output[number][part].clone() for number, part in parts.items()]
        else:
            then = cloned(read())
        # one entry for each output, as for any call; those that are not kept get no address
        shown = [p if n in own else replace(p, offset=DESCRIBED_ONLY) for n, p in enumerate(places)]
        self._kept[slot : slot + 1] = [_Kept(shown, then, read)]

    def _slot_among(self, slots: int) -> int | None:
        """Return the number of the slot in which the offered outputs are kept; None if they are not kept."""
        self._offered += 1
        if len(self._kept) < slots:
            return len(self._kept)
        sampled = max(1, slots // 2)
        if (slot := self._chance.randrange(self._offered)) < sampled:
            return slot
        return sampled + self._offered % (slots - sampled) if sampled < slots else None

    def check(self) -> None:
        """Raise Fault if a kept output has changed."""
        for kept in self._kept:
            _must_be_unchanged(kept)


def slots_for(size: int, *, saves: bool) -> int:
    """Return the number of calls whose outputs are kept, if the outputs of one call have `size` bytes.

    With `saves`, memory is short, and large outputs are not kept.
    """
    if size > constants.KEPT_BYTES:
        return 0 if saves or size > constants.KEPT_LARGE else 1
    return min(constants.KEPT_OUTPUTS, constants.KEPT_BYTES // size) if size else 0


def part_of(ref: TensorRef, chance: random.Random) -> tuple[slice, ...]:
    """Return a random part of a tensor, as a slice for each dimension: all of it, or KEPT_PART bytes of a large tensor.

    The elements of the part lie as close together as the layout allows.
    """
    slices, left = [slice(0, size) for size in ref.shape], bytes_named(ref)
    for dimension in sorted(range(len(ref.shape)), key=lambda number: -ref.strides[number]):
        if left <= constants.KEPT_PART:
            break
        size = ref.shape[dimension]
        count = max(1, size * constants.KEPT_PART // left)
        first = chance.randrange(size - count + 1)
        slices[dimension], left = slice(first, first + count), left // size * count
    return tuple(slices)


def narrowed(ref: TensorRef, part: tuple[slice, ...]) -> TensorRef:
    """Return the description (shape and address) of a part of a tensor."""
    steps = sum(one.start * stride for one, stride in zip(part, ref.strides, strict=True))
    shape = tuple(one.stop - one.start for one in part)
    return replace(ref, shape=shape, offset=ref.offset + steps * getattr(torch, ref.dtype).itemsize)


def _must_be_unchanged(kept: _Kept) -> None:
    """Raise Fault if the outputs differ from their copies."""
    if not same(kept.then, kept.read()):
        reason = "an output changed in a later timed block: its memory is used again"
        raise Fault(Rejected(rule="output_reused", reason=reason))
