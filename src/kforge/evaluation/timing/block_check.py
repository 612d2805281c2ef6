"""Checks the results of each pair of timed blocks: outputs, the memory they lie in, inputs and state. (torch)

Everything that is checked when a program is verified is checked here again, from outside: both workers are stopped, and
the referee reads their memory. The baseline is the reference in its own worker, and has made the same calls.
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
from kforge.evaluation.timing.varied_calls import VariedCalls
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
"""Name of the case in a verdict about a timed call."""


class BlockCheck:
    """Checks the last block of the candidate against the last block of the baseline, which has the same weights and
    calls."""

    trusts_baseline = True
    """Whether the baseline is the reference, and not another program."""

    def __init__(self, correctness: CorrectnessCheck, baseline: WorkerClient, candidate: WorkerClient) -> None:
        self._correctness = correctness
        self._baseline = baseline
        self._candidate = candidate
        self._timed_outputs = TimedOutputs(correctness)
        self.varied = VariedCalls(correctness)
        self._precision = correctness.precision
        self._written = correctness.handover.updated_names()
        """Names of the buffers and parameters that the reference updates."""
        self._accepted = 0.0
        """The largest difference from the baseline that the comparison with the reference has accepted so far."""
        self._chance = secrets.SystemRandom()
        self._kept = KeptOutputs(baseline, candidate, self._chance)
        self._sample: list[torch.Tensor] = []
        """The tensors of one output of the baseline's last block."""
        self._scales: dict[int, float] = {}
        """For each tensor of an output, the largest magnitude of the first sample that was not all zero."""
        self._memory = OutputMemory(), OutputMemory()
        """Memory in which all outputs of the baseline, and of the candidate, have lain."""
        self._seen = 0
        """Bytes of all outputs of the candidate so far."""
        self._held_before = 0
        """Bytes of memory that the candidate held when the race began, minus those of the baseline."""

    def begin(self) -> None:
        """Start both sides again with the same state, if a call's result depends on earlier calls.

        The first time, it also notes how much memory the candidate holds.
        """
        if not self._seen:
            self._held_before = memory_held(self._candidate.pid) - memory_held(self._baseline.pid)
        if self._timed_outputs.in_sequence:
            self._correctness.handover.line_up(self._baseline)

    def renew_weights(self) -> None:
        """Give both sides and the reference new weights. A program must not use anything that it computed from the old
        ones."""
        if self._timed_outputs.in_sequence:  # the reference has not made the calls that have changed both sides' state
            self._correctness.handover.renew()
            self._correctness.handover.line_up(self._baseline)
        else:
            self._baseline.set_state(self._correctness.renew_weights())

    def options(self) -> dict[str, Any]:
        """Return the options of the next block for `TimedBlock.prepare`, which are the same on both sides."""
        seed = secrets.randbits(62) if self._correctness.instance.draws_random_numbers else None
        return {"seed": seed, "state": self._written}

    def look(self, sets: list[list[Any]]) -> None:
        """Check the results of the last blocks, then overwrite outputs as a caller might. Raises Fault if something is
        wrong."""
        for memory, side in zip(self._memory, (self._baseline, self._candidate), strict=True):
            memory.add(side.block.places())
        self._seen += len(sets) * self._memory[0].largest
        self._compare(sets)
        self.varied.forget()
        self._overwrite(len(sets))
        self._sample = []  # views of memory of a worker, which may be freed

    @property
    def stocked(self) -> int:
        """Bytes of memory in which the candidate's outputs lay, if it seems to have filled them in advance; otherwise
        0."""
        return stocked(*self._memory)

    @property
    def is_too_short(self) -> bool:
        """Whether outputs that the candidate filled in advance could have served most calls so far, given the memory it
        holds."""
        return could_last(self._held_before, self._seen, self._memory[0])

    def _overwrite(self, calls: int) -> None:
        """Overwrite some outputs of the last block: stretches of memory in some calls, single elements in others.

        If a call's result may depend on earlier calls, a module may have kept its output. Then the same single elements
        are overwritten on both sides, and no stretches. Raises Fault if an output is read-only.
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
        """Return the numbers of a call's outputs that share no memory with weights, nor with inputs on these sides."""
        count = len(tensor_leaves(self._candidate.block.places()[index]))
        shared = self._correctness.reference.shared_outputs
        views = {number for side in sides for number, _ in side.block.aliases(index)}
        return [number for number in range(count) if number not in shared and number not in views]

    def _take_sample(self, expected: Any) -> None:
        """Remember an output of the baseline, and the scale of its tensors."""
        self._sample = tensor_leaves(expected)
        for number, tensor in enumerate(self._sample):
            # the first one: later ones may hold what was written to the outputs of a module that keeps them
            if not self._scales.get(number):
                self._scales[number] = scale_of(tensor)

    def _compare(self, sets: list[list[Any]]) -> None:
        """Compare outputs of varied calls, and of random ones, with the baseline's.

        Outputs that differ, and a random share of the others, are compared with the reference. Raises Fault if an
        output is wrong.
        """
        if self._candidate.access.sees:
            self._memory_is_fresh()
            self._state_is_alike()
            self._keep_one(len(sets))
        varied = self.varied.places
        others = self._chance.sample(range(len(sets)), min(len(sets), constants.COMPARED_CALLS))
        chosen = [*varied, *(index for index in others if index not in varied)]
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
            try:
                self._timed_outputs.must_be_right(sets[index], output, CASE)
            except Fault:
                if self.varied.is_excused(index):
                    continue
                raise
            if difference == math.inf:  # excused where the reference is not finite, which says nothing of other calls
                continue
            if difference > limit:
                return
            self._accepted = max(self._accepted, difference)
            in_full = False

    def end(self) -> None:
        """Check the outputs that were kept during the race. Raises Fault if a later call has changed one of them."""
        self._kept.check()

    def _keep_one(self, calls: int) -> None:
        """Offer the outputs of a random call to KeptOutputs, except those that the reference does not make anew."""
        index = self._chance.randrange(calls)
        shared = overlapping(self._baseline.block.places())
        used_again = {number for what, *numbers in shared if what == TWO_CALLS for number in numbers}
        self._kept.offer(index, set(self._own_outputs(index, (self._candidate, self._baseline))) - used_again)

    def _difference(self, expected: Any, output: Any) -> tuple[float, float]:
        """Return the largest error and its limit, as the function `_difference` does. Large outputs are compared in
        pieces, to save memory."""
        cut = self._correctness.cut
        if cut is None or not (cut.cuts_output(expected) and cut.cuts_output(output)):
            return _difference(expected, output, self._precision)
        pairs = ((cut.output(expected, *bounds), cut.output(output, *bounds)) for bounds in cut.ranges())
        return max(_difference(ours, theirs, self._precision) for ours, theirs in pairs)

    def _memory_is_fresh(self) -> None:
        """Raise Fault if outputs share memory, within one call or between two calls, and the baseline's outputs do
        not."""
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
            reason = f"{what} share memory, but the reference's do not (in a timed block)"
            raise Fault(Rejected(rule="output_reused", reason=reason))

    def _state_is_alike(self) -> None:
        """Raise Fault if the state that the calls left differs from the baseline's."""
        if not self._written:
            return
        for ours, theirs in zip(self._baseline.block.states(), self._candidate.block.states(), strict=True):
            self._timed_outputs.must_leave_state_alike(ours, theirs, "state after a timed call")


def _shapes(outputs: Any) -> list[tuple[int, ...]]:
    return [tuple(ref.shape) for ref in tensor_leaves(outputs)]


def _difference(expected: Any, got: Any, precision: str) -> tuple[float, float]:
    """Return the largest error of `got` if it does not agree with `expected` (otherwise 0), and the largest error at
    which the two still count as comparable."""
    if surely_alike(expected, got, precision):
        return 0.0, 0.0
    found = compare(Truth(expected, expected), got, precision, CASE, local=True)
    if not isinstance(found, Mismatch):
        return 0.0, 0.0
    return math.inf if found.max_error is None else found.max_error, constants.COMPARABLE * (found.tolerance or 0.0)
