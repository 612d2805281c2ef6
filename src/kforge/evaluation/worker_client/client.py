"""The referee's end of one worker: sends orders and checks answers. A fault of the program becomes a verdict.
(torch)"""

from __future__ import annotations

import math
import secrets
from contextlib import closing
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ChannelError, EvaluationError, ProblemError
from kforge.evaluation.protocol import (
    BUILD_DEADLINE,
    BUSY_LOOKS,
    COMPILE_DEADLINE,
    LEAST_CALLS_PER_BLOCK,
    START_DEADLINE,
)
from kforge.evaluation.reference.reference import subseed
from kforge.evaluation.transport import wire
from kforge.evaluation.transport.aliases import lying_in_inputs
from kforge.evaluation.transport.shared_memory import address_of, bytes_named, bytes_of, described_if_over
from kforge.evaluation.worker_client.code_ownership import TELLS_COUNTERS, CodeSampler
from kforge.evaluation.worker_client.orders import Fault as Fault
from kforge.evaluation.worker_client.orders import Orders
from kforge.evaluation.worker_client.output_access import HostAccess, OutputAccess
from kforge.evaluation.worker_client.outputs import Left
from kforge.evaluation.worker_client.outputs import Output as Output
from kforge.evaluation.worker_client.profile_rows import (
    KERNELS,
    MAX_KERNEL_NAME,
    MAX_NAME,
    MAX_PROFILED_SECONDS,
    PROFILE_ROWS,
    rows_of,
)
from kforge.problems.tensors import cloned, same
from kforge.records import Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kforge.evaluation.processes.launch import Process
    from kforge.evaluation.transport.aliases import Aliases, Mapping
    from kforge.evaluation.transport.shared_memory import SharedRegion
    from kforge.evaluation.worker_client.orders import Took
    from kforge.evaluation.worker_client.profile_rows import Row
    from kforge.platforms import Sanitizer
    from kforge.problems.instance import Instance

SLACK = 1 << 20
SHIFTS = 64
"""Number of offsets at which the inputs of a block may begin; on a host over one page."""
ROOM = 4
"""Memory that a worker may need at once, in outputs: the output, the one before and intermediate values."""
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
        self._orders = Orders(process, self.access, trusted=trusted)
        self._trusted = trusted
        self._inputs: SharedRegion | None = None
        self._output_bytes = output_bytes + SLACK
        self._outputs: SharedRegion | None = None
        """The region for its outputs, unless they are read where they lie."""
        self._timed = False
        self._prepared: list[tuple[Any, Any]] = []
        self._placed: tuple[list[Any], Any] | None = None
        """Inputs in their region, and their places there."""
        self._done: list[Any] = []
        self._done_state: Any = None
        self._seed: int | None = None
        self._keep: list[tuple[int, int]] = []
        """Slots, and the calls of the last block whose outputs the worker must keep in them."""
        self._left: list[Left] = []
        """What each call of a paced block left."""
        self._mappings: list[Mapping] | None = None
        """Mappings of the region for inputs, once they were looked up for the last block."""
        self._chance = secrets.SystemRandom()
        self._begin = begin
        self._begun = False
        if ready:
            self.await_ready()

    def begin(self) -> None:
        """Let it initialize, which takes a device's worker a good part of a second, while others do the same."""
        self._orders.begin(self._begin)
        self._begun = True

    def await_ready(self) -> None:
        """Wait until it is ready for its first order. Raises Fault, or EvaluationError for a trusted one."""
        self._orders.order(self._begin, wire.Ready, START_DEADLINE, sent=self._begun)
        if not self.access.shown:
            self._outputs = self.access.region(self._output_bytes)
            self._attach("outputs", self._outputs)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def orders(self) -> Orders:
        """The orders, which count what its timed orders took."""
        return self._orders

    @property
    def traceable(self) -> bool:
        """Whether it computes where it can be stopped and looked at."""
        return isinstance(self.access, HostAccess) and TELLS_COUNTERS

    def sanitize(self, sanitizer: Sanitizer, builds: Path) -> None:
        """Let a worker that was started under a sanitizer build for it, in this folder."""
        order = wire.Sanitize(str(builds), list(sanitizer.flags), list(sanitizer.environment))
        self._orders.order(order, wire.Ready, START_DEADLINE)

    def plant(self, error: str) -> None:
        """Let it make an error that its sanitizer must report. Raises Fault where the error has other effects, too."""
        self._orders.order(wire.Plant(error), wire.Ready, self._call_deadline)

    def leave(self, seconds: float) -> str:
        """Wait `seconds` for it to end by itself, then kill it. Returns the end of its log.

        A sanitizer reports some of its findings only when the program ends.
        """
        said = self._process.leave(seconds)
        self.close()
        return said

    def load(self, source: str, filename: str, entry: str) -> None:
        self._orders.order(wire.Load(source, filename, entry), wire.Ready, BUILD_DEADLINE)

    def construct(
        self, instance: Instance, seed: int, *, compile_mode: str = "", hasty: bool = False
    ) -> dict[str, wire.TensorRef]:
        """Build the module under a given random state. Returns the names and shapes of its state dict."""
        try:
            order = wire.Construct(seed, self._share(instance.init_inputs()), compile_mode, hasty)
            order.encode()
        except TypeError as error:
            raise ProblemError(f"{instance.problem.name}: get_init_inputs() cannot be handed over: {error}") from None
        state = self._orders.order(order, wire.Constructed, BUILD_DEADLINE).state
        if not isinstance(state, dict) or not all(isinstance(ref, wire.TensorRef) for ref in state.values()):
            raise self._orders.violation("its state is not a mapping of tensors")
        return state

    def set_state(self, state: dict[str, torch.Tensor]) -> None:
        self._orders.order(wire.SetState(self._share(state)), wire.Ready, self._call_deadline)

    def call(
        self, arguments: Sequence[Any], *, poison: int = 0, compiling: bool = False, seed: int | None = None
    ) -> Output:
        """Make one call. `seed`: seed of the random numbers that the module draws, where the reference draws some.

        The arguments may be those that `place` has returned.
        """
        in_place = self._placed is not None and arguments is self._placed[0]
        shared = self._placed[1] if self._placed is not None and in_place else self._share(list(arguments))
        if in_place:  # the caller has freed its own inputs by now
            self.access.make_room(math.inf)
        deadline = COMPILE_DEADLINE if compiling else self._call_deadline
        try:
            result = self._orders.order(wire.Call(shared, poison, seed), wire.Result, deadline)
        except (Fault, EvaluationError) as error:
            # torch keeps memory for later in every process; a timed block is never run twice on the same inputs
            if OUT_OF_MEMORY not in str(error) or not self.access.make_room(math.inf):
                raise
            result = self._orders.order(wire.Call(shared, poison, seed), wire.Result, deadline)
        if in_place:
            return Output(self._copy(result, in_place=True), self._aliases(result.aliases), None)
        aliases, intact = self._aliases(result.aliases), self._intact(shared, arguments)
        return Output(self._copy(result), aliases, None if intact else cloned(self._inputs_now(shared)))

    def place(self, arguments: Sequence[Any]) -> list[Any]:
        """Move the inputs of the next call into the worker's memory; returns them as they lie there.

        The output of a call on these is valid until the next order only, and the caller must check whether the call has
        left the inputs as they were.
        """
        shared = self._share(list(arguments))
        views: list[Any] = self._inputs_now(shared)
        self._placed = (views, shared)
        return views

    def previous_output(self) -> Any:
        """Return the output of the call before the last one, as it is now; valid until the next order."""
        return self._copy(self._orders.order(wire.Fetch(0), wire.Result, self._call_deadline), in_place=True)

    def state(self, names: list[str]) -> dict[str, torch.Tensor]:
        value = self._copy(self._orders.order(wire.FetchState(names), wire.Result, self._call_deadline))
        return value if isinstance(value, dict) else {}

    def prepare(
        self,
        sets: Sequence[Sequence[Any]],
        times: int = 1,
        *,
        seed: int | None = None,
        state: Sequence[str] = (),
        paced: bool = False,
    ) -> None:
        """Get a timed block ready: the worker flushes its caches, and only then do the inputs appear in its memory.

        Where the referee cannot write to that memory, the inputs are there before: the worker copies them while it
        prepares. `times`: how often the block goes through the inputs, for blocks that are not timed. `seed`: seed of
        the random numbers that the module draws in the block, where the reference draws some. `state`: names of the
        buffers that `block_state` will return. `paced`: the block is for `run_paced`, which shows the inputs one by
        one; caches are not flushed.
        """
        values = [list(arguments) for arguments in sets]
        if not self._timed:  # memory of single calls is not needed again here, but by others
            self.access.forget()
            if self._outputs is not None:
                self._outputs.clear()
        self._timed = True
        self.access.make_room((ROOM + times * len(values)) * self._output_bytes)
        region = self._region_for(values)
        # the relative position of buffers changes the speed by several per cent: it must not favour one side
        # permanently
        region.reset(shift=self._chance.randrange(SHIFTS))
        shared = region.place(values)
        if not self.access.sees:
            region.fill(shared, values)
        order = wire.Prepare(shared * times, bool(values) and not paced, list(state), self._keep)
        self._keep = []
        self._orders.order(order, wire.Ready, self._call_deadline, settle=self.access.settle_seconds)
        if self.access.sees and values and not paced:
            self.access.show(region, shared, values)
            self.access.flush()
        self._prepared = list(zip(shared, sets, strict=True)) * times
        self._done, self._left, self._seed = [], [], seed

    def run_block(self) -> Took:
        """Run the prepared block, and return what it took."""
        return self._go(len(self._prepared))

    def run_paced(self) -> list[Took]:
        """Run a block call by call and return what each took: a call's inputs appear when the call before is over."""
        assert self._inputs is not None
        took, left = [], []
        for index, (shared, arguments) in enumerate(self._prepared):
            self.access.show(self._inputs, shared, list(arguments))
            took.append(self._go(1, brief=True))
            # at once: what a call leaves for a later one must be missing
            intact = self.block_inputs_intact(index)
            inputs = None if intact else cloned(self._inputs_now(shared))
            output, state = self.block_output(index), self.block_state()
            # what is read on a device lies there still; what is read from a host's process is a copy already
            left.append(
                Left(*map(cloned, (output, inputs, state))) if self.access.shown else Left(output, inputs, state)
            )
        self.must_be_quiet("after it said that it was done")
        self._left = left
        return took

    def _go(self, calls: int, *, brief: bool = False) -> Took:
        if not brief:
            self.must_be_quiet("before the clock started")
        seed = None if self._seed is None else subseed(str(self._seed), len(self._done))
        done = self._orders.order(wire.Go(calls, seed), wire.Done, self._call_deadline, brief=brief)
        if not brief:
            self.must_be_quiet("after it said that it was done")
        self._learn(done.outputs, done.memory, calls)
        self._done_state = done.state
        return self._orders.took

    def watch_block(self) -> tuple[list[Row], float]:
        """Run the prepared block. Returns the kernels that its device ran, and their total time: only claims."""
        # a profiler's first use takes long
        seen = self._orders.order(wire.Watch(), wire.Watched, self._call_deadline + START_DEADLINE)
        self.must_be_quiet("after it said that it was done")
        self._learn(seen.outputs, seen.memory, len(self._prepared))
        if not 0.0 <= seen.busy < MAX_PROFILED_SECONDS:
            raise self._orders.violation("its device was busy for an impossible time")
        return self._rows(seen.kernels, KERNELS, MAX_KERNEL_NAME), seen.busy

    def _learn(self, outputs: Any, memory: Any, calls: int) -> None:
        """Read what a worker says about the outputs of the last `calls` calls of a block."""
        if not isinstance(outputs, list) or len(outputs) != calls:
            raise self._orders.violation("a block has not one output for every call")
        self._look_into(memory)
        self._done += [address_of(outputs, index) for index in range(calls)]
        self._mappings = None

    def _look_into(self, memory: Any) -> None:
        try:
            self.access.learn(memory)
        except ChannelError as error:
            raise self._orders.violation(str(error)) from None

    def must_be_quiet(self, when: str) -> None:
        """Raises Fault when the program works on its device without an order."""
        # a baseline has no reason to: if it seems to work, the machine is slow for a moment
        if any(self.access.is_quiet() for _ in range(BUSY_LOOKS if self._trusted else 1)):
            return
        self.close()
        if self.access.stays_busy():
            raise EvaluationError("another process works on the device, so nothing can be timed here now")
        raise self._orders.failure(Rejected(rule="unbidden_work", reason=f"the program worked on the device {when}"))

    def trace_block(self, looks: int) -> list[str]:
        """Run the prepared block and stop it at random moments. Returns the files in whose code it was found."""
        with closing(CodeSampler(self._process, looks)) as watch:
            order = wire.Go(len(self._prepared), self._seed)
            self._orders.order(order, wire.Done, self._call_deadline, watch=watch)
        return watch.found

    def block_output(self, index: int) -> Any:
        """Return the output of one call of the last block, as it was when the clock stopped.

        It is read from the worker's memory, which has been held still since then, or requested where that cannot be
        seen.
        """
        if self._left:
            return self._left[index].output
        if not self.access.sees:
            return self._copy(self._orders.order(wire.Fetch(index), wire.Result, self._call_deadline))
        return self._read(self._done[index], self._where_it_lies)

    @property
    def has_copies(self) -> bool:
        """Whether the outputs of the last block were copied after each of its calls, as those of a paced block are."""
        return bool(self._left)

    def block_states(self) -> list[Any]:
        """Return the state after each call of a paced block, or after all calls of another one."""
        return [left.state for left in self._left] or [self.block_state()]

    def block_state(self) -> Any:
        """Return the buffers that `prepare` named, as they were when the clock stopped; read as outputs are."""
        return self._read(self._done_state, self._where_it_lies)

    def keep(self, slot: int, index: int, places: list[wire.TensorRef]) -> Callable[[], Any]:
        """Let the worker keep the outputs of a call of the last block, in place of what it has kept in that slot.

        Returns a function that reads the tensors at these places as they are then.
        """
        self._keep = [*self._keep, (slot, index)]
        return lambda: self._read(places, self._where_it_lies)

    def block_places(self) -> list[Any]:
        """Return where the outputs of each call of the last block lie, as the worker says; they are read from there."""
        return self._done

    def block_aliases(self, index: int) -> Aliases:
        """Return which outputs of that call lie in the memory of which inputs, where that can be seen from outside."""
        if self._mappings is None:
            self._mappings = self._mapped(self.access.inputs_in)
        return lying_in_inputs(self._done[index], self._prepared[index][0], self._mappings)

    def files(self) -> list[Mapping]:
        """Its memory that may be mapped several times, where that can be seen from outside."""
        return self._mapped(self.access.files_in)

    def _mapped(self, look: Callable[[int], list[Mapping]]) -> list[Mapping]:
        try:
            return look(self.pid)
        except ChannelError as error:
            raise self._orders.unreadable(error) from None

    def block_inputs_intact(self, index: int) -> bool:
        """Return whether the inputs of that call are unchanged."""
        if self._left:
            return self._left[index].changed_inputs is None
        return self._intact(*self._prepared[index])

    def block_inputs(self, index: int) -> tuple[Any, Any]:
        """Return the inputs of that call as they were, and as it has left them; valid until the next order."""
        shared, arguments = self._prepared[index]
        if self._left:
            changed = self._left[index].changed_inputs
            return list(arguments), list(arguments) if changed is None else changed
        return list(arguments), self._inputs_now(shared)

    def profile(self, arguments: Sequence[Any], calls: int) -> list[Row]:
        order = wire.RecordProfile(self._share(list(arguments)), calls)
        rows = self._orders.order(order, wire.Profiled, self._call_deadline + BUILD_DEADLINE).rows
        return self._rows(rows, PROFILE_ROWS, MAX_NAME)

    def _rows(self, rows: Any, most: int, longest: int) -> list[Row]:
        try:
            return rows_of(rows, most, longest)
        except (TypeError, ValueError):
            raise self._orders.violation("its profile is not a list of rows") from None

    def count(self, arguments: Sequence[Any], calls: int) -> None:
        """Let a worker that was started under a profiler make calls."""
        order = wire.Count(self._share(list(arguments)), calls)
        self._orders.order(order, wire.Ready, self._call_deadline + BUILD_DEADLINE)

    def finish(self, seconds: float, most: int) -> str:
        """Let the worker end by itself. Returns the last bytes that it wrote to its standard streams."""
        self._process.finish(seconds)
        return self._process.last_words(most)

    def close(self, patience: float = 10.0) -> None:
        self._process.kill(patience)

    # --- memory ----------------------------------------------------------------------------------------------

    def _attach(self, name: str, region: SharedRegion) -> None:
        # the program may run by now (inputs come after it was loaded), so what goes wrong here is its fault as well
        descriptors = () if region.handle else (region.descriptor,)
        order = wire.Attach(name, region.size, region.handle)
        address = self._orders.order(order, wire.Attached, START_DEADLINE, descriptors=descriptors).address
        if name == "inputs":
            self.access.attach_inputs(region, address)

    def _share(self, value: Any) -> Any:
        return self._region_for(value).pack(value)

    def _region_for(self, value: Any) -> SharedRegion:
        """Return the input region, empty, and large enough for this value at any offset."""
        alignment = self.access.alignment
        needed = bytes_of(value, alignment) + SHIFTS * alignment
        if self._inputs is None or self._inputs.size < needed:
            self._inputs = self._placed = None  # freed first: there may not be room for both
            self.access.detach_inputs()
            # for a whole block at once where that is allowed: mapping gigabytes again takes 70 ms
            block = LEAST_CALLS_PER_BLOCK * needed
            self._inputs = self.access.region((block if block <= self.access.input_bytes else needed) + SLACK)
            self._attach("inputs", self._inputs)
        self._inputs.reset()
        self._placed = None
        return self._inputs

    def _intact(self, shared: Any, arguments: Any) -> bool:
        return same(self._inputs_now(shared), list(arguments))

    def _inputs_now(self, shared: Any) -> Any:
        assert self._inputs is not None
        return self._inputs.unpack(shared, self.access.device)

    def _copy(self, result: wire.Result, *, in_place: bool = False) -> Any:
        """Return the output of a call. `in_place`: it need not stay valid when the worker goes on."""
        if self._outputs is not None:
            value, view = result.value, self._outputs.view
        else:
            self._look_into(result.memory)
            value, view = described_if_over(self._output_bytes, result.value), self._where_it_lies

        def take(ref: wire.TensorRef) -> torch.Tensor:
            # described only: an output larger than any right answer; zeros of no storage stand for its shape
            if ref.offset < 0:
                return torch.zeros((), dtype=getattr(torch, ref.dtype), device=self.access.device).expand(ref.shape)
            return view(ref).to(self.access.device, copy=not in_place)

        return self._read(value, take)

    def _aliases(self, claim: Any) -> Aliases:
        match claim:
            case list() if all(isinstance(pair, tuple) and list(map(type, pair)) == [int, int] for pair in claim):
                return frozenset(claim)
        raise self._orders.violation("it does not say which outputs lie in which inputs")

    def _where_it_lies(self, ref: wire.TensorRef) -> torch.Tensor:
        return self.access.read(self.pid, ref, self._output_bytes)

    def _read(self, tree: Any, take: Callable[[wire.TensorRef], torch.Tensor]) -> Any:
        """A tree with its tensors. All of them together are no larger than the region that a right answer fits into:
        a short frame can name the same memory a hundred thousand times."""
        left = self._output_bytes

        def resolve(leaf: Any) -> Any:
            nonlocal left
            if not isinstance(leaf, wire.TensorRef):
                return leaf
            size = bytes_named(leaf)
            if leaf.offset >= 0:
                left -= size
            if left < 0:
                raise ChannelError("more is described than any right answer holds")
            return take(leaf)

        try:
            return pytree.tree_map(resolve, tree)
        except ChannelError as error:
            raise self._orders.unreadable(error) from None
