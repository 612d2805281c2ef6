"""The referee's end of one worker: sends orders and checks answers. A fault of the program becomes a verdict. (torch)

`orders.py` sends an order and waits for its answer, `timed_block.py` has the timed blocks, `input_region.py` and
`outputs.py` the memory of inputs and outputs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kforge.errors import EvaluationError, ProblemError
from kforge.evaluation.constants import BUILD_DEADLINE, COMPILE_DEADLINE, START_DEADLINE
from kforge.evaluation.transport import wire
from kforge.evaluation.worker_client.code_ownership import TELLS_COUNTERS
from kforge.evaluation.worker_client.input_region import InputRegion
from kforge.evaluation.worker_client.orders import Fault as Fault
from kforge.evaluation.worker_client.orders import Orders
from kforge.evaluation.worker_client.output_access import HostAccess, OutputAccess
from kforge.evaluation.worker_client.outputs import Output as Output
from kforge.evaluation.worker_client.outputs import OutputReader
from kforge.evaluation.worker_client.profile_rows import MAX_NAME, PROFILE_ROWS, TIMELINE_ROWS
from kforge.evaluation.worker_client.timed_block import TimedBlock
from kforge.problems.tensors import cloned

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import torch

    from kforge.evaluation.processes.launch import Process
    from kforge.evaluation.worker_client.profile_rows import Row
    from kforge.platforms import Sanitizer
    from kforge.problems.instance import Instance

OUT_OF_MEMORY = "OutOfMemoryError"


class WorkerClient:
    """One program in one worker. Failures of a trusted one (a baseline) raise EvaluationError instead of Fault."""

    def __init__(
        self,
        process: Process,
        begin: wire.Begin,
        *,
        output_bytes: int,
        call_deadline: float,
        access: OutputAccess | None = None,
        trusted: bool = False,
        ready: bool = True,
    ) -> None:
        """`ready`: wait now until it is ready; otherwise the caller calls `begin` and `await_ready`."""
        self._call_deadline = call_deadline
        self.access = access or OutputAccess()
        self._process = process
        self.orders = Orders(process, self.access, trusted=trusted)
        """The orders, which count what its timed orders took."""
        self._inputs = InputRegion(self.orders, self.access)
        self.outputs = OutputReader(self.orders, self.access, process.pid, output_bytes)
        self.block = TimedBlock(process, self.orders, self.access, self._inputs, self.outputs, deadline=call_deadline)
        self._begin = begin
        self._begun = False
        if ready:
            self.await_ready()

    # --- the worker's life -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let it initialize, which takes a device's worker a good part of a second, while others do the same."""
        self.orders.begin(self._begin)
        self._begun = True

    def await_ready(self) -> None:
        """Wait until it is ready for its first order. Raises Fault, or EvaluationError for a trusted one."""
        self.orders.order(self._begin, wire.Ready, START_DEADLINE, sent=self._begun)
        self.outputs.attach()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def traceable(self) -> bool:
        """Whether it computes where it can be stopped and looked at."""
        return isinstance(self.access, HostAccess) and TELLS_COUNTERS

    def finish(self, seconds: float, most: int) -> str:
        """Let the worker end by itself. Returns the last bytes that it wrote to its standard streams."""
        self._process.finish(seconds)
        return self._process.last_words(most)

    def leave(self, seconds: float) -> str:
        """Wait `seconds` for it to end by itself, then kill it. Returns the end of its log.

        A sanitizer reports some of its findings only when the program ends.
        """
        said = self._process.leave(seconds)
        self.close()
        return said

    def close(self, patience: float = 10.0) -> None:
        self._process.kill(patience)

    # --- the program and its weights -------------------------------------------------------------------------

    def load(self, source: str, filename: str, entry: str) -> None:
        self.orders.order(wire.Load(source, filename, entry), wire.Ready, BUILD_DEADLINE)

    def construct(
        self, instance: Instance, seed: int, *, compile_mode: str = "", hasty: bool = False
    ) -> dict[str, wire.TensorRef]:
        """Build the module under a given random state. Returns the names and shapes of its state dict."""
        try:
            order = wire.Construct(seed, self._inputs.share(instance.init_inputs()), compile_mode, hasty)
            order.encode()
        except TypeError as error:
            raise ProblemError(f"{instance.problem.name}: get_init_inputs() cannot be handed over: {error}") from None
        state = self.orders.order(order, wire.Constructed, BUILD_DEADLINE).state
        if not isinstance(state, dict) or not all(isinstance(ref, wire.TensorRef) for ref in state.values()):
            raise self.orders.violation("its state is not a mapping of tensors")
        return state

    def set_state(self, state: dict[str, torch.Tensor]) -> None:
        self.orders.order(wire.SetState(self._inputs.share(state)), wire.Ready, self._call_deadline)

    def state(self, names: list[str]) -> dict[str, torch.Tensor]:
        value = self.outputs.copy(self.orders.order(wire.FetchState(names), wire.Result, self._call_deadline))
        return value if isinstance(value, dict) else {}

    # --- single calls ----------------------------------------------------------------------------------------

    def call(
        self, arguments: Sequence[Any], *, poison: int = 0, compiling: bool = False, seed: int | None = None
    ) -> Output:
        """Make one call. `seed`: seed of the random numbers that the module draws, where the reference draws some.

        The arguments may be those that `place` has returned.
        """
        placed = self._inputs.places_of(arguments)
        shared = placed if placed is not None else self._inputs.share(list(arguments))
        if placed is not None:  # the caller has freed its own inputs by now
            self.access.make_room(math.inf)
        deadline = COMPILE_DEADLINE if compiling else self._call_deadline
        result = self._call_again_with_more_memory(wire.Call(shared, poison, seed), deadline)
        if placed is not None:
            return Output(self.outputs.copy(result, in_place=True), self.outputs.aliases(result.aliases), None)
        aliases, intact = self.outputs.aliases(result.aliases), self._inputs.are_intact(shared, arguments)
        return Output(self.outputs.copy(result), aliases, None if intact else cloned(self._inputs.now(shared)))

    def _call_again_with_more_memory(self, order: wire.Call, deadline: float) -> wire.Result:
        """Make a call; where it fails for lack of memory that this process can free, free it and call again."""
        try:
            return self.orders.order(order, wire.Result, deadline)
        except (Fault, EvaluationError) as error:
            # torch keeps memory for later in every process; a timed block is never run twice on the same inputs
            if OUT_OF_MEMORY not in str(error) or not self.access.make_room(math.inf):
                raise
            return self.orders.order(order, wire.Result, deadline)

    def place(self, arguments: Sequence[Any]) -> list[Any]:
        """Move the inputs of the next call into the worker's memory; returns them as they lie there.

        The output of a call on these is valid until the next order only, and the caller must check whether the call has
        left the inputs as they were.
        """
        return self._inputs.place(arguments)

    def previous_output(self) -> Any:
        """Return the output of the call before the last one, as it is now; valid until the next order."""
        return self.outputs.copy(self.orders.order(wire.Fetch(0), wire.Result, self._call_deadline), in_place=True)

    # --- under a profiler or a sanitizer ---------------------------------------------------------------------

    def profile(self, arguments: Sequence[Any], calls: int) -> tuple[list[Row], list[Row]]:
        """Let the worker profile its own calls. Returns what it claims: the operators that ran, each with its number of
        calls, and the timeline of one call, each operator with the nanoseconds after which it began."""
        order = wire.RecordProfile(self._inputs.share(list(arguments)), calls)
        profiled = self.orders.order(order, wire.Profiled, self._call_deadline + BUILD_DEADLINE)
        return (
            self.orders.rows(profiled.rows, PROFILE_ROWS, MAX_NAME),
            self.orders.rows(profiled.timeline or [], TIMELINE_ROWS, MAX_NAME),
        )

    def count(self, arguments: Sequence[Any], calls: int) -> None:
        """Let a worker that was started under a profiler make calls."""
        order = wire.CountedCalls(self._inputs.share(list(arguments)), calls)
        self.orders.order(order, wire.Ready, self._call_deadline + BUILD_DEADLINE)

    def sanitize(self, sanitizer: Sanitizer, builds: Path) -> None:
        """Let a worker that was started under a sanitizer build for it, in this folder."""
        order = wire.Sanitize(str(builds), list(sanitizer.flags), list(sanitizer.environment))
        self.orders.order(order, wire.Ready, START_DEADLINE)

    def plant(self, error: str) -> None:
        """Let it make an error that its sanitizer must report. Raises Fault where the error has other effects, too."""
        self.orders.order(wire.Plant(error), wire.Ready, self._call_deadline)
