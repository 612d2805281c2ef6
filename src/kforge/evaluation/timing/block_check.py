"""Checks what a pair of timed blocks has left: outputs, the memory they lie in, inputs and state. (torch)

Everything that is checked when a program is verified is checked here, too, and from outside: both sides are held still,
and the referee reads what they have left. The baseline is the reference in a separate worker; it has made the same
calls.
"""

from __future__ import annotations

import math
import random
import secrets
from typing import TYPE_CHECKING, Any

from kforge.evaluation import constants
from kforge.evaluation.comparison.comparison import Truth, compare, surely_alike
from kforge.evaluation.correctness.side_effects import must_have_same_effects
from kforge.evaluation.timing.kept_outputs import KeptOutputs
from kforge.evaluation.timing.prefilled_outputs import OutputMemory, could_last, memory_held, stocked
from kforge.evaluation.timing.timed_outputs import TimedOutputs
from kforge.evaluation.transport.aliases import tensor_leaves
from kforge.evaluation.transport.overlaps import TWO_CALLS, mapped_twice, overlapping
from kforge.evaluation.transport.shared_memory import bytes_named
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.evaluation.worker_client.overwriting import edits_of, scale_of
from kforge.records import Mismatch, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from kforge.evaluation.correctness.check import CorrectnessCheck
    from kforge.evaluation.worker_client.overwriting import Edit

CASE = "a timed call"


class BlockCheck:
    """Compares the last blocks of two sides, which must have the same weights and have made the same calls."""

    def __init__(self, correctness: CorrectnessCheck, baseline: WorkerClient, candidate: WorkerClient) -> None:
        self._correctness = correctness
        self._baseline = baseline
        self._candidate = candidate
        self._timed_outputs = TimedOutputs(correctness)
        self._precision = correctness.precision
        self._written = correctness.handover.updated_names()
        """Buffers and parameters that the reference updates."""
        self._accepted = 0.0
        """The largest difference from the baseline that a full check has found to be right."""
        self._chance = secrets.SystemRandom()
        self._kept = KeptOutputs(baseline, candidate, self._chance)
        self._sample: list[torch.Tensor] = []
        """The tensors of an output of the baseline's last block."""
        self._scales: dict[int, float] = {}
        """The largest magnitude of each tensor of the sample, when it first had one."""
        self._memory = OutputMemory(), OutputMemory()
        """Memory in which all outputs of the baseline and of the candidate have lain."""
        self._seen = 0
        """Bytes of all outputs of the candidate so far."""
        self._held_before = 0
        """Bytes that the candidate held when the race began, beyond what the baseline did."""

    def begin(self) -> None:
        """Give both sides the same state, where a call's result depends on the calls before it."""
        if not self._seen:
            self._held_before = memory_held(self._candidate.pid) - memory_held(self._baseline.pid)
        if self._timed_outputs.in_sequence:
            self._correctness.handover.line_up(self._baseline)

    def renew_weights(self) -> None:
        """Give both sides and the reference new weights: a program must not have kept anything made of the old ones."""
        if self._timed_outputs.in_sequence:  # the reference has not made the calls that have changed both sides' state
            self._correctness.handover.renew()
            self._correctness.handover.line_up(self._baseline)
        else:
            self._baseline.set_state(self._correctness.renew_weights())

    def options(self) -> dict[str, Any]:
        """The options of the next block for `TimedBlock.prepare`, on both sides."""
        seed = secrets.randbits(62) if self._correctness.instance.draws_random_numbers else None
        return {"seed": seed, "state": self._written}

    def look(self, sets: list[list[Any]]) -> None:
        """Check what the last blocks have left, and write to the outputs as a caller might.

        Raises Fault where something is wrong.
        """
        for memory, side in zip(self._memory, (self._baseline, self._candidate), strict=True):
            memory.add(side.block.places())
        self._seen += len(sets) * self._memory[0].largest
        self._compare(sets)
        self._overwrite(len(sets))
        self._sample = []  # views of memory of a worker, which may be freed

    @property
    def stocked(self) -> int:
        """Bytes of memory that the candidate's outputs have lain in, where it seems to have filled them in advance."""
        return stocked(*self._memory)

    @property
    def is_too_short(self) -> bool:
        """Whether prefilled outputs could have served most of the calls so far, by the memory that the candidate
        holds."""
        return could_last(self._held_before, self._seen, self._memory[0])

    def _overwrite(self, calls: int) -> None:
        """Overwrite stretches of some outputs, and in others some elements (overwriting.py).

        Where a call may depend on earlier ones, a module may keep its output: then the same elements are overwritten on
        both sides, and no stretch, which would leave nothing to compare. Raises Fault.
        """
        room, alike = constants.OVERWRITTEN_BYTES, self._timed_outputs.in_sequence or bool(self._written)
        sides = (self._candidate, self._baseline) if alike else (self._candidate,)
        kept = {place for places in self._kept.places for place in places}
        chance = random.Random(secrets.randbits(128))  # noqa: S311 - as secret as its seed
        chosen = chance.sample(range(calls), min(calls, constants.OVERWRITTEN_CALLS))
        edits: dict[tuple[int, tuple[int, ...]], list[Edit]] = {}
        for index in chosen:
            whole = not alike and room > 0 and chance.random() < constants.OVERWRITTEN_WHOLE
            places = [tensor_leaves(side.block.places()[index]) for side in sides]
            for number in self._own_outputs(index, sides):
                if number >= len(self._sample) or places[0][number] in kept:
                    continue
                which = number, places[0][number].shape
                if which not in edits:  # for all calls together, which is quicker
                    sample, scale = self._sample[number], self._scales.get(number, 0.0)
                    edits[which] = edits_of(which[1], sample, scale, chance, len(chosen))
                edit = edits[which].pop()
                if whole:
                    edit = edit.stretched(chance)
                    room -= bytes_named(places[0][number])
                for side, refs in zip(sides, places, strict=True):
                    if not side.access.overwrite(side.pid, refs[number], edit) and side is self._candidate:
                        reason = "an output of a timed call lies in memory that cannot be written to"
                        raise Fault(Rejected(rule="output_read_only", reason=reason))

    def _own_outputs(self, index: int, sides: Iterable[WorkerClient]) -> list[int]:
        """The numbers of the outputs of a call that share no memory with weights, nor with inputs on these sides."""
        count = len(tensor_leaves(self._candidate.block.places()[index]))
        shared = self._correctness.reference.shared_outputs
        views = {number for side in sides for number, _ in side.block.aliases(index)}
        return [number for number in range(count) if number not in shared and number not in views]

    def _take_sample(self, expected: Any) -> None:
        self._sample = tensor_leaves(expected)
        for number, tensor in enumerate(self._sample):
            # the first one: later ones may hold what was written to the outputs of a module that keeps them
            if not self._scales.get(number):
                self._scales[number] = scale_of(tensor)

    def _compare(self, sets: list[list[Any]]) -> None:
        """Compare random calls with the baseline's. Those that differ, and a random share of the rest, are fully
        checked."""
        if self._candidate.access.sees:
            self._memory_is_fresh()
            self._state_is_alike()
            self._keep_one(len(sets))
        chosen = self._chance.sample(range(len(sets)), min(len(sets), constants.COMPARED_CALLS))
        in_full = self._chance.random() < constants.CHECKED_SHARE
        writes = self._correctness.reference.mutates_inputs
        for index in chosen:
            left = must_have_same_effects(self._candidate, self._baseline, index, self._precision, writes=writes)
            if left is not None:
                self._timed_outputs.must_be_written_right(sets[index], left, CASE)
            output, expected = self._candidate.block.output(index), self._baseline.block.output(index)
            self._take_sample(expected)
            if self._timed_outputs.in_sequence:
                self._timed_outputs.must_be_alike(expected, output, CASE, sets[index])
                continue
            difference, limit = self._difference(expected, output)
            if difference <= self._accepted and not in_full:
                continue
            self._timed_outputs.must_be_right(sets[index], output, CASE)
            if difference > limit:
                return
            self._accepted = max(self._accepted, difference)
            in_full = False

    def end(self) -> None:
        """Check outputs of the whole race again: a later call must not have written to any. Raises Fault."""
        self._kept.check()

    def _keep_one(self, calls: int) -> None:
        """Perhaps keep the outputs of a random call, where the reference makes new memory for them."""
        index = self._chance.randrange(calls)
        shared = overlapping(self._baseline.block.places())
        used_again = {number for what, *numbers in shared if what == TWO_CALLS for number in numbers}
        self._kept.offer(index, set(self._own_outputs(index, (self._candidate, self._baseline))) - used_again)

    def _difference(self, expected: Any, output: Any) -> tuple[float, float]:
        """Like `_difference`, for large outputs in pieces: their temporaries would be as large as several of them."""
        cut = self._correctness.cut
        if cut is None or not (cut.cuts_output(expected) and cut.cuts_output(output)):
            return _difference(expected, output, self._precision)
        pairs = ((cut.output(expected, *bounds), cut.output(output, *bounds)) for bounds in cut.ranges())
        return max(_difference(ours, theirs, self._precision) for ours, theirs in pairs)

    def _memory_is_fresh(self) -> None:
        """Raises Fault where elements of outputs share an address, in one call or in two, and the baseline's do not."""
        places = self._candidate.block.places()
        if list(map(_shapes, places)) != list(map(_shapes, self._baseline.block.places())):
            raise Fault(Mismatch(kind="shape", reason="outputs have other shapes than the reference's", case=CASE))
        everything = [*places, *self._kept.places] if len(places) > 1 else places
        if mapped_twice(everything, self._candidate.outputs.files()):
            reason = "outputs lie in one place of memory that is mapped several times (in a timed block)"
            raise Fault(Rejected(rule="output_reused", reason=reason))
        undue = overlapping(everything)
        if undue and (undue := undue - overlapping(self._baseline.block.places())):
            what, *_ = min(undue)
            reason = f"{what} share memory where the reference's do not (in a timed block)"
            raise Fault(Rejected(rule="output_reused", reason=reason))

    def _state_is_alike(self) -> None:
        if not self._written:
            return
        for ours, theirs in zip(self._baseline.block.states(), self._candidate.block.states(), strict=True):
            self._timed_outputs.must_leave_state_alike(ours, theirs, "state after a timed call")


def _shapes(outputs: Any) -> list[tuple[int, ...]]:
    return [tuple(ref.shape) for ref in tensor_leaves(outputs)]


def _difference(expected: Any, got: Any, precision: str) -> tuple[float, float]:
    """How far two outputs differ where they are not alike, and how far they may differ to be comparable at all."""
    if surely_alike(expected, got, precision):
        return 0.0, 0.0
    found = compare(Truth(expected, expected), got, precision, CASE, local=True)
    if not isinstance(found, Mismatch):
        return 0.0, 0.0
    return math.inf if found.max_error is None else found.max_error, constants.COMPARABLE * (found.tolerance or 0.0)
