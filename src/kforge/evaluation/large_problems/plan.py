"""Decides whether the open problem is judged as a whole or in pieces, by the available memory and time. (torch)

If memory is short, the right result of a case is computed piece by piece. If double precision is slow, it is computed
only for some pieces, which are secret and differ from case to case.
"""

from __future__ import annotations

import gc
import math
import time
from typing import TYPE_CHECKING, Any

import torch

from kforge.evaluation.constants import ESTIMATED_CASES, LEAN_CALLS, REFERENCE_SECONDS, SLOW_DESCRIPTION
from kforge.evaluation.large_problems.memory_budget import Budget, LimitedMemory, gigabytes
from kforge.evaluation.large_problems.pieces import find_cut, part_of
from kforge.evaluation.reference.other_values import show_tiny_entries
from kforge.evaluation.reference.reference import Reference
from kforge.platforms import host

if TYPE_CHECKING:
    from kforge.evaluation.large_problems.pieces import Cut
    from kforge.evaluation.worker_client.output_access import OutputAccess
    from kforge.platforms import Adapter, DeviceMemory
    from kforge.problems.instance import Instance
    from kforge.records import TensorSpec, Workload

IN_PIECES = "exact_in_pieces"
"""Label of a verdict for which the right results were computed piece by piece, each judged on its own scale."""
IN_PART = "exact_in_part"
"""Label of a verdict for which the right results were computed in double precision only for a secret part of each
batch. The rest was compared with torch's own result."""
COUPLED = frozenset({"updates state", "modifies inputs", "nondeterministic", "random"})
"""Labels of workloads that are never cut, because a call on a part would leave another state or draw other numbers."""
LINTED_ROWS = 256
"""A large problem is linted on this many positions of the dimension along which it is cut."""
ROOM_TO_ALIGN = 512
"""Bytes that are added for each tensor, so that it can be aligned."""
SAMPLE_PIECES = 32
"""Number of pieces into which a case is cut to estimate how long double precision takes: one piece is timed. If it
takes too long, cases are cut into at least this many pieces."""


class MemoryPlan:
    """The memory limit of one referee, and how the open problem is judged within it."""

    def __init__(self, adapter: Adapter, limit: int) -> None:
        """`limit` is the bytes that all processes of an evaluation may use together; 0 means all free memory."""
        self._adapter = adapter
        self._limit = limit
        self._memory: DeviceMemory | None = None
        self._budget = Budget(limit, is_given=True)
        self.call_bytes = 0
        """Bytes of the inputs and outputs of one eager call."""
        self.is_short = False
        """Whether there is too little memory to judge whole cases."""
        self.cut: Cut | None = None
        """How cases are cut into pieces; None if they are judged as a whole."""

    @property
    def memory(self) -> DeviceMemory | None:
        """The device's memory, or the part of it that may be used. None if the platform shares no device memory."""
        if self._memory is None:
            memory = self._adapter.device_memory()
            self._memory = LimitedMemory(memory, self._limit) if memory is not None and self._limit else memory
        return self._memory

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that the plan gives every verdict on the open problem."""
        if self.cut is None:
            return ()
        return (IN_PIECES, IN_PART) if self.cut.exact < self.cut.count else (IN_PIECES,)

    def plan(self, instance: Instance, workload: Workload, seconds: float) -> None:
        """Decide how a problem is judged. `seconds` is how long its description took.

        Raises InputError if the user's memory limit is too small.
        """
        self.call_bytes = bytes_of_specs((*workload.inputs, *workload.outputs))
        self.cut = None
        self._budget = Budget.of(self._limit, self.memory)
        self.is_short = self._budget.is_short_for(self.call_bytes)
        if self.is_short:
            self._budget.must_hold(instance.problem.name, self.call_bytes)
            self.free_memory()
        if (self.is_short or seconds > SLOW_DESCRIPTION) and not set(workload.labels) & COUPLED:
            self.cut = self._cut(instance)

    def _cut(self, instance: Instance) -> Cut | None:
        """Return how cases are cut; None if they need not or cannot be cut."""
        reference, inputs = Reference(instance, 0, varied=True), instance.inputs(0)
        show_tiny_entries(reference.model)  # otherwise samples that a tiny or zero weight couples seem independent
        cut = find_cut(reference.own_result, inputs)
        if cut is None:
            return None
        seconds = ESTIMATED_CASES * _seconds_of(reference, inputs, cut.into(SAMPLE_PIECES))
        if seconds <= REFERENCE_SECONDS:
            return cut.into(self._budget.pieces_of(self.call_bytes)) if self.is_short else None
        pieces = max(SAMPLE_PIECES, self._budget.pieces_of(self.call_bytes))
        return cut.into(pieces, share=REFERENCE_SECONDS / seconds)

    def linted(self, instance: Instance) -> Instance:
        """Return the problem to lint. If cases are cut, it has a smaller batch."""
        return instance if self.cut is None else part_of(instance, self.cut, LINTED_ROWS)

    def spare(self, access: OutputAccess) -> OutputAccess:
        """Limit the memory that `access` uses, if memory is short and cases are cut into pieces. Returns `access`."""
        if self.is_short and self.cut is not None:
            access.save(self._budget.limit)
        return access

    def free_memory(self) -> None:
        """Free memory that this process no longer needs."""
        gc.collect()  # torch's dispatch modes leave reference cycles, which hold results of the reference
        host.trim_memory()
        if self.memory is not None:
            self.memory.trim()

    def shortage_message(self, free: int | None = None) -> str:
        """Return the error message for a device with too little memory. `free` is the number of free bytes."""
        there = "" if free is None else f", and the device has {gigabytes(free)} free"
        needed = gigabytes(LEAN_CALLS * self.call_bytes)
        return (
            f"the inputs and outputs of a call take {gigabytes(self.call_bytes)}, judging it takes up to {needed} of "
            f"memory{there}; end other programs on the device, or make the inputs smaller"
        )


def _seconds_of(reference: Reference, inputs: list[Any], cut: Cut) -> float:
    """Return the estimated seconds of a case in double precision, from those of one piece."""
    piece = cut.inputs(inputs, *cut.ranges()[0])
    start = time.monotonic()
    reference.truth(piece)
    reference.instance.wait()
    return (time.monotonic() - start) * len(cut.ranges())


def bytes_of_specs(specs: tuple[TensorSpec, ...]) -> int:
    """Return the bytes of shared memory that tensors of these shapes need, with room for alignment."""
    return sum(getattr(torch, spec.dtype).itemsize * math.prod(spec.shape) + ROOM_TO_ALIGN for spec in specs)
