"""Runs the timed blocks of one worker, and reads what their calls have left: outputs, inputs and state. (torch)"""

from __future__ import annotations

import secrets
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.evaluation.constants import START_DEADLINE
from kforge.evaluation.reference.reference import subseed
from kforge.evaluation.transport import wire
from kforge.evaluation.transport.aliases import lying_in_inputs
from kforge.evaluation.transport.shared_memory import address_of
from kforge.evaluation.worker_client.code_ownership import CodePosition, CodeSampler
from kforge.evaluation.worker_client.input_region import SHIFTS
from kforge.evaluation.worker_client.profile_rows import KERNELS, MAX_KERNEL_NAME, MAX_PROFILED_SECONDS
from kforge.problems.tensors import cloned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.evaluation.processes.launch import Process
    from kforge.evaluation.transport.aliases import Aliases, Mapping
    from kforge.evaluation.worker_client.input_region import InputRegion
    from kforge.evaluation.worker_client.orders import Orders, Took
    from kforge.evaluation.worker_client.output_access import OutputAccess
    from kforge.evaluation.worker_client.outputs import OutputReader
    from kforge.evaluation.worker_client.profile_rows import Row

ROOM = 4
"""Memory that a worker may need besides the outputs of a block, as a multiple of one call's outputs: an earlier output
and temporaries."""


@dataclass(frozen=True)
class Left:
    """What a paced call left, copied before the next call began."""

    output: Any
    changed_inputs: Any
    """The inputs after the call; None if they are unchanged."""
    state: Any


class TimedBlock:
    """The current block of one worker. Call `prepare`, run the block once, then read what its calls have left."""

    def __init__(
        self,
        process: Process,
        orders: Orders,
        access: OutputAccess,
        inputs: InputRegion,
        outputs: OutputReader,
        *,
        deadline: float,
    ) -> None:
        self._process = process
        self._orders = orders
        self._access = access
        self._inputs = inputs
        self._outputs = outputs
        self._deadline = deadline
        self._chance = secrets.SystemRandom()
        self._is_first = True
        self._prepared: list[tuple[Any, Any]] = []
        """For each call, the places of its inputs and their values."""
        self._done: list[Any] = []
        """For each finished call, the places of its outputs."""
        self._done_state: Any = None
        self._seed: int | None = None
        self._keep: list[tuple[int, int]] = []
        """Pairs of a slot and the number of a call of this block. The worker must keep that call's outputs in the
        slot."""
        self._left: list[Left] = []
        """For each call of a paced block, what it left."""
        self._mappings: list[Mapping] | None = None
        """Where the worker has mapped the region for inputs; None until it is looked up for this block."""

    # --- running ---------------------------------------------------------------------------------------------

    def prepare(
        self,
        sets: Sequence[Sequence[Any]],
        times: int = 1,
        *,
        seed: int | None = None,
        state: Sequence[str] = (),
        paced: bool = False,
    ) -> None:
        """Prepare a block: the worker is stopped, then the referee flushes the caches and writes the inputs to the
        worker's memory (`show_block`; the order depends on the device).

        If the referee cannot write to the worker's memory, the worker copies the inputs and flushes the caches. `times`
        repeats the inputs, for blocks that are not timed. `seed` is the random seed for the block, if the reference
        draws random numbers. `state` names the buffers that `states` returns. `paced`: the block is for `run_paced`,
        which writes the inputs one by one; then caches are not flushed.
        """
        values = [list(arguments) for arguments in sets]
        if self._is_first:  # this process no longer needs the memory of single calls, but others do
            self._outputs.forget()
        self._is_first = False
        self._access.make_room((ROOM + times * len(values)) * self._outputs.most)
        region = self._inputs.room_for(values)
        # the relative position of buffers changes the speed by several per cent, so it varies: otherwise it could
        # favour one side in all blocks
        region.reset(shift=self._chance.randrange(SHIFTS))
        shared = region.place(values)
        if not self._access.sees:
            region.fill(shared, values)
        flushed = bool(values) and not paced
        order = wire.Prepare(shared * times, flushed and not self._access.sees, list(state), self._keep)
        self._keep = []
        self._orders.order(order, wire.Ready, self._deadline, settle=self._access.settle_seconds)
        if self._access.sees and flushed:
            self._access.show_block(region, shared, values)
        self._prepared = list(zip(shared, sets, strict=True)) * times
        self._done, self._left, self._seed = [], [], seed

    def run(self) -> Took:
        """Run the prepared block, and return its times."""
        return self._go(len(self._prepared))

    def run_paced(self) -> list[Took]:
        """Run a paced block call by call, and return the times of each. A call's inputs appear only when the call
        before is over."""
        took, left = [], []
        for index, (shared, arguments) in enumerate(self._prepared):
            self._inputs.show(shared, arguments)
            took.append(self._go(1, brief=True))
            # read before the next call, so that work which a call leaves for a later one is missing
            inputs = None if self.inputs_are_intact(index) else cloned(self._inputs.now(shared))
            output, state = self.output(index), self._state()
            # on a device these are views of the worker's memory; from a process on the host they are copies already
            left.append(
                Left(*map(cloned, (output, inputs, state))) if self._access.shown else Left(output, inputs, state)
            )
        self._orders.must_be_quiet("after it said that it was done")
        self._left = left
        return took

    def watch(self) -> tuple[list[Row], float]:
        """Run the prepared block under torch's profiler. Returns the kernels that the device ran, and the seconds it
        was busy.

        Both may be false, because the worker reports them.
        """
        # a profiler's first use takes long
        seen = self._orders.order(wire.Watch(), wire.Watched, self._deadline + START_DEADLINE)
        self._orders.must_be_quiet("after it said that it was done")
        self._learn(seen.outputs, seen.memory, len(self._prepared))
        if not 0.0 <= seen.busy < MAX_PROFILED_SECONDS:
            raise self._orders.violation("its device was busy for an impossible time")
        return self._orders.rows(seen.kernels, KERNELS, MAX_KERNEL_NAME), seen.busy

    def trace(self, looks: int) -> list[str]:
        """Run the prepared block and stop it up to `looks` times. Returns the files whose code was running."""
        return [at.file for at in self.sample(looks)]

    def sample(self, looks: int) -> list[CodePosition]:
        """Run the prepared block and stop it up to `looks` times. Returns where its threads were."""
        with closing(CodeSampler(self._process, looks)) as watch:
            order = wire.Go(len(self._prepared), self._seed)
            self._orders.order(order, wire.Done, self._deadline, watch=watch)
        return watch.found

    def _go(self, calls: int, *, brief: bool = False) -> Took:
        """Run the next calls of the block, and return their times.

        Raises Fault if the program works on its device before or after its calls. With `brief`, these two checks are
        left out, and the calls count as finished when the device is seen idle once.
        """
        if not brief:
            self._orders.must_be_quiet("before the clock started")
        seed = None if self._seed is None else subseed(str(self._seed), len(self._done))
        done = self._orders.order(wire.Go(calls, seed), wire.Done, self._deadline, brief=brief)
        if not brief:
            self._orders.must_be_quiet("after it said that it was done")
        self._learn(done.outputs, done.memory, calls)
        self._done_state = done.state
        return self._orders.took

    def _learn(self, outputs: Any, memory: Any, calls: int) -> None:
        """Remember where the outputs of the last `calls` calls lie, as the worker says. Raises Fault if it is
        malformed."""
        if not isinstance(outputs, list) or len(outputs) != calls:
            raise self._orders.violation("a block has not one output for every call")
        self._outputs.learn(memory)
        self._done += [address_of(outputs, index) for index in range(calls)]
        self._mappings = None

    # --- what its calls have left ----------------------------------------------------------------------------

    def output(self, index: int) -> Any:
        """Return the output of one call, as it was when the clock stopped.

        It is read from the worker's memory, which has not changed since then; if that cannot be read, the worker is
        asked.
        """
        if self._left:
            return self._left[index].output
        if not self._access.sees:
            return self._outputs.copy(self._orders.order(wire.Fetch(index), wire.Result, self._deadline))
        return self._outputs.read(self._done[index])

    @property
    def has_copies(self) -> bool:
        """Whether outputs were copied after each call, as in a paced block."""
        return bool(self._left)

    def states(self) -> list[Any]:
        """Return the buffers that `prepare` named: after each call of a paced block, or once after all calls of another
        block."""
        return [left.state for left in self._left] or [self._state()]

    def _state(self) -> Any:
        return self._outputs.read(self._done_state)

    def keep(self, slot: int, index: int, places: list[wire.TensorRef]) -> Callable[[], Any]:
        """Let the worker keep the outputs of call `index` in a slot, instead of those that it has kept there.

        Returns a function that reads the tensors at these places whenever it is called.
        """
        self._keep = [*self._keep, (slot, index)]
        return lambda: self._outputs.read(places)

    def places(self) -> list[Any]:
        """Return where the outputs of each call lie, as the worker says. Outputs are read from there."""
        return self._done

    def aliases(self, index: int) -> Aliases:
        """Return which outputs of a call lie in which of its inputs, by addresses; empty if that cannot be seen."""
        if self._mappings is None:
            self._mappings = self._outputs.inputs()
        return lying_in_inputs(self._done[index], self._prepared[index][0], self._mappings)

    def inputs_are_intact(self, index: int) -> bool:
        """Return whether a call has left its inputs unchanged."""
        if self._left:
            return self._left[index].changed_inputs is None
        return self._inputs.are_intact(*self._prepared[index])

    def inputs(self, index: int) -> tuple[Any, Any]:
        """Return the inputs before and after a call. They are valid until the next order."""
        shared, arguments = self._prepared[index]
        if self._left:
            changed = self._left[index].changed_inputs
            return list(arguments), list(arguments) if changed is None else changed
        return list(arguments), self._inputs.now(shared)
