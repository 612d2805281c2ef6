"""The referee's side of one worker: sends orders and checks the answers. A program's failure becomes a verdict. (torch)

`orders.py` sends an order and waits for its answer. `timed_block.py` runs timed blocks. `input_region.py` and
`outputs.py` handle the memory of inputs and outputs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kforge.errors import EvaluationError, ProblemError
from kforge.evaluation.constants import BUILD_DEADLINE, COMPILE_DEADLINE, MAX_LOG, START_DEADLINE
from kforge.evaluation.transport import wire
from kforge.evaluation.worker_client.code_ownership import TELLS_COUNTERS
from kforge.evaluation.worker_client.input_region import InputRegion
from kforge.evaluation.worker_client.orders import Fault as Fault
from kforge.evaluation.worker_client.orders import Orders
from kforge.evaluation.worker_client.output_access import HostAccess, OutputAccess
from kforge.evaluation.worker_client.outputs import Output as Output
from kforge.evaluation.worker_client.outputs import OutputReader
from kforge.evaluation.worker_client.profile_rows import MAX_EXPLANATION, MAX_NAME, PROFILE_ROWS, TIMELINE_ROWS
from kforge.evaluation.worker_client.timed_block import TimedBlock
from kforge.problems.tensors import cloned
from kforge.records import AuthoredCode

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence
    from pathlib import Path

    import torch

    from kforge.evaluation.processes.launch import Process
    from kforge.evaluation.worker_client.code_ownership import CodePosition
    from kforge.evaluation.worker_client.profile_rows import Row
    from kforge.platforms import Sanitizer
    from kforge.problems.instance import Instance

OUT_OF_MEMORY = "OutOfMemoryError"
"""Part of the message of torch's exception when a device has no more memory."""


class WorkerClient:
    """Controls one worker with one program.

    Methods raise Fault if the program fails; its verdict says how. If the program is trusted (a baseline), they raise
    EvaluationError instead.
    """

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
        """`begin` is the first order. `output_bytes` is the size of a right answer; larger answers are not read.

        With `ready`, wait now until the worker is ready. Otherwise the caller calls `begin` and later `await_ready`.
        """
        self._call_deadline = call_deadline
        self.access = access or OutputAccess()
        self._process = process
        self.orders = Orders(process, self.access, trusted=trusted)
        """Sends the orders, and counts the time that they take."""
        self._inputs = InputRegion(self.orders, self.access)
        self.outputs = OutputReader(self.orders, self.access, process.pid, output_bytes)
        self.block = TimedBlock(process, self.orders, self.access, self._inputs, self.outputs, deadline=call_deadline)
        self._begin = begin
        self._begun = False
        if ready:
            self.await_ready()

    # --- the worker's life -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Send the first order without waiting for the answer, so that several workers can initialize at once.

        A worker with a device takes up to a second for that.
        """
        self.orders.begin(self._begin)
        self._begun = True

    def await_ready(self) -> None:
        """Wait until the worker has initialized. Raises Fault, or EvaluationError for a trusted program."""
        self.orders.order(self._begin, wire.Ready, START_DEADLINE, sent=self._begun)
        self.outputs.attach()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def traceable(self) -> bool:
        """Whether the program computes on the host, where it can be stopped to see whose code runs."""
        return isinstance(self.access, HostAccess) and TELLS_COUNTERS

    def log_after_exit(self, seconds: float, most: int = MAX_LOG) -> str:
        """Let the worker end by itself, for at most these seconds. Returns the last `most` bytes of its log.

        A profiler, and a sanitizer for some of its findings, report only when the program ends.
        """
        self._process.await_exit(seconds)
        return self._process.last_words(most)

    def close(self, patience: float = 10.0) -> None:
        """Kill the worker, and wait up to `patience` seconds for its end. After a patience of 0, a later call waits."""
        self._process.kill(patience)

    # --- the program and its weights -------------------------------------------------------------------------

    def load(self, source: str, filename: str, entry: str) -> None:
        """Let the worker import a program from its source."""
        self.orders.order(wire.Load(source, filename, entry), wire.Ready, BUILD_DEADLINE)

    def construct(
        self, instance: Instance, seed: int, *, compile_mode: str = "", hasty: bool = False
    ) -> dict[str, wire.TensorRef]:
        """Let the worker construct the program's module after setting a random seed. Returns the names and shapes of
        its state.

        With `compile_mode`, the module is compiled by `torch.compile`. Raises ProblemError if the problem's constructor
        arguments cannot be sent.
        """
        try:
            order = wire.Construct(seed, self._inputs.share(instance.init_inputs()), compile_mode, hasty)
            order.encode()
        except TypeError as error:
            raise ProblemError(f"{instance.problem.name}: the result of get_init_inputs(): {error}") from None
        state = self.orders.order(order, wire.Constructed, BUILD_DEADLINE).state
        if not isinstance(state, dict) or not all(isinstance(ref, wire.TensorRef) for ref in state.values()):
            raise self.orders.violation("its state is not a mapping of tensors")
        return state

    def set_state(self, state: dict[str, torch.Tensor]) -> None:
        """Copy these weights and buffers into the program's module."""
        self.orders.order(wire.SetState(self._inputs.share(state)), wire.Ready, self._call_deadline)

    def state(self, names: list[str]) -> dict[str, torch.Tensor]:
        """Return copies of these entries of the program's state; empty if the worker answers with something else."""
        value = self.outputs.copy(self.orders.order(wire.FetchState(names), wire.Result, self._call_deadline))
        return value if isinstance(value, dict) else {}

    # --- single calls ----------------------------------------------------------------------------------------

    def call(
        self, arguments: Sequence[Any], *, poison: int = 0, compiling: bool = False, seed: int | None = None
    ) -> Output:
        """Make one call and return its output.

        `arguments` may be the result of `place`. `poison` is how many bytes of memory are filled with NaN and freed
        before. `compiling` allows the longer deadline of a first compiled call. `seed` is the random seed, for a
        reference that draws random numbers.
        """
        placed = self._inputs.places_of(arguments)
        shared = placed if placed is not None else self._inputs.share(list(arguments))
        if placed is not None:  # the caller has freed its own copy of the inputs by now
            self.access.make_room(math.inf)
        deadline = COMPILE_DEADLINE if compiling else self._call_deadline
        result = self._call_again_with_more_memory(wire.Call(shared, poison, seed), deadline)
        aliases, settings = self.outputs.aliases(result.aliases), self.outputs.settings(result.settings)
        if placed is not None:
            return Output(self.outputs.copy(result, in_place=True), aliases, None, settings)
        intact = self._inputs.are_intact(shared, arguments)
        changed = None if intact else cloned(self._inputs.now(shared))
        return Output(self.outputs.copy(result), aliases, changed, settings)

    def _call_again_with_more_memory(self, order: wire.Call, deadline: float) -> wire.Result:
        """Make a call. If it runs out of memory and the referee can free some, free it and call once more."""
        try:
            return self.orders.order(order, wire.Result, deadline)
        except (Fault, EvaluationError) as error:
            # torch caches freed memory in every process, also in the referee; timed blocks are never repeated like this
            if OUT_OF_MEMORY not in str(error) or not self.access.make_room(math.inf):
                raise
            return self.orders.order(order, wire.Result, deadline)

    def place(self, arguments: Sequence[Any]) -> list[Any]:
        """Copy the inputs of the next call into the worker's memory. Returns views of that memory, which `call`
        accepts.

        This saves memory for large inputs. The output of such a call is valid only until the next order, and the caller
        must check whether the call has changed its inputs.
        """
        return self._inputs.place(arguments)

    def previous_output(self) -> Any:
        """Return the output of the call before the last one, as it is now. It is valid until the next order."""
        return self.outputs.copy(self.orders.order(wire.Fetch(0), wire.Result, self._call_deadline), in_place=True)

    # --- under a profiler or a sanitizer ---------------------------------------------------------------------

    def profile(self, arguments: Sequence[Any], calls: int) -> tuple[list[Row], list[Row]]:
        """Let the worker profile its own calls by torch. Both results may be false.

        Returns a row for each operator, with its number of calls; and the timeline of one call, in which the number of
        each row is the nanoseconds after which the operator began.
        """
        order = wire.RecordProfile(self._inputs.share(list(arguments)), calls)
        profiled = self.orders.order(order, wire.Profiled, self._call_deadline + BUILD_DEADLINE)
        return (
            self.orders.rows(profiled.rows, PROFILE_ROWS, MAX_NAME),
            self.orders.rows(profiled.timeline or [], TIMELINE_ROWS, MAX_NAME),
        )

    def explain(self, positions: Counter[CodePosition]) -> AuthoredCode:
        """Let the worker say to which lines of its sources samples belong. The answer may be false. Raises Fault if it
        is malformed."""
        rows = [(at.file, at.address, samples) for at, samples in positions.items()]
        answer = self.orders.order(wire.Explain(rows), wire.Explained, self._call_deadline + BUILD_DEADLINE)
        try:
            if len(answer.document) > MAX_EXPLANATION:
                raise ValueError
            return AuthoredCode.from_json(answer.document)
        except ValueError:
            raise self.orders.violation("its explanation of samples is malformed") from None

    def count(self, arguments: Sequence[Any], calls: int) -> None:
        """Let a worker that runs under a profiler make calls for the profiler to record."""
        order = wire.CountedCalls(self._inputs.share(list(arguments)), calls)
        self.orders.order(order, wire.Ready, self._call_deadline + BUILD_DEADLINE)

    def sanitize(self, sanitizer: Sanitizer, builds: Path) -> None:
        """Let a worker that runs under a sanitizer build for it, in the folder `builds`."""
        order = wire.Sanitize(str(builds), list(sanitizer.flags), list(sanitizer.environment))
        self.orders.order(order, wire.Ready, START_DEADLINE)

    def plant(self, error: str) -> None:
        """Let the worker commit an error that its sanitizer must report. Raises Fault if the worker does not survive
        it."""
        self.orders.order(wire.Plant(error), wire.Ready, self._call_deadline)
