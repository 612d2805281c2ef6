"""The untrusted process: imports a program, calls it when the referee orders it, and reports the results. (torch)

This code runs in the same process as the candidate, which could change it. So the referee believes none of its reports.
The referee knows the right outputs, draws the inputs, reads the clock and decides. This code must only be correct if
the candidate is honest; otherwise the referee's checks must hold without it.
"""

from __future__ import annotations

import faulthandler
import gc
import inspect
import linecache
import os
import secrets
import socket
import sys
import time
import traceback
import types
from collections import namedtuple
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from kforge import inline, platforms
from kforge.errors import ChannelError
from kforge.evaluation.baselines import haste
from kforge.evaluation.constants import CONSUMED_BYTES, FOREVER, MAX_LOG, MAX_TRUSTED_FRAME
from kforge.evaluation.transport import wire
from kforge.evaluation.transport.aliases import find_aliases
from kforge.evaluation.transport.channel import Channel, SideDied
from kforge.evaluation.transport.shared_memory import SharedRegion, address, addresses, describe
from kforge.evaluation.worker.allocations import ShownAllocations
from kforge.evaluation.worker.caller_settings import GENERATOR, CallerSettings
from kforge.evaluation.worker.extensions import build_log, kept_in, try_slim_headers
from kforge.problems.randomness import seed_generators
from kforge.problems.tensors import HOST, cloned, tensors_in
from kforge.profiling import authored, torch_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROGRAM = "candidate"
"""Name of the module that the program becomes."""
UNCOUNTED_CALLS = 2
"""Calls before those that a profiler records, so that work that is done only once is not part of the profile."""

MAX_KERNEL_NAME = 1000
"""Most characters of a kernel's name. The arguments of a C++ template make names of any length."""


class Worker:
    """Runs one program: carries out the referee's orders. `serve` lists the method for each."""

    def __init__(self, channel: Channel, platform: platforms.Platform, build_cache: Path) -> None:
        self.channel = channel
        self.build_cache = build_cache
        self.adapter = platform.adapter
        self.device = self.adapter.device()
        self.memory = self.adapter.device_memory()
        self.shown = None if self.memory is None else ShownAllocations(self.memory)
        self.regions: dict[str, SharedRegion] = {}
        self.program: Any = None
        self.model: Any = None
        self.called = False
        """Whether the module was called since it was constructed."""
        self.block: list[tuple[Any, ...]] = []
        self.outputs: list[Any] = []
        self.kept: dict[int, Any] = {}
        """Outputs that the referee checks again later, by slot."""
        self.written_state: list[str] = []
        """Names of buffers and parameters that the reference updates."""
        self.placed: Any = None
        """The output that the referee may be reading now; it must not be freed."""
        self.shift: Any = None
        """Unused memory of random size, which changes the addresses of outputs from block to block."""
        self.calls_took = 0
        """Nanoseconds of all calls of the last block, by the host's clock."""
        self.around = 0
        """Nanoseconds between the order and the answer of the last block that were not spent in its calls."""
        self.sanitized = False
        self.timed = False
        self.compiled = False

    def serve(self) -> None:
        """Carry out orders until the referee closes the channel, which raises SideDied."""
        orders: dict[type[wire.WireMessage], Callable[[Any], wire.WireMessage]] = {
            wire.Load: self.load,
            wire.Construct: self.construct,
            wire.SetState: self.set_state,
            wire.Call: self.call,
            wire.Prepare: self.prepare,
            wire.Go: self.go,
            wire.Fetch: self.fetch,
            wire.FetchState: self.fetch_state,
            wire.RecordProfile: self.record_profile,
            wire.Sanitize: self.sanitize,
            wire.CountedCalls: self.count,
            wire.Plant: self.plant,
            wire.Watch: self.watch,
            wire.Explain: self.explain,
        }
        while True:
            order, descriptors = self.channel.receive_with_descriptor(FOREVER)
            if isinstance(order, wire.Attach):
                self.regions[order.region] = self.attached(order, descriptors)
                frame = wire.Attached(self.regions[order.region].flat.data_ptr()).encode()
            else:
                try:
                    frame = orders[type(order)](order).encode()
                except BaseException as error:  # SystemExit of a candidate is a failure like any other
                    frame = failure(error).encode()
            if isinstance(order, wire.Go):
                self.around = time.perf_counter_ns() - self.channel.arrived - self.calls_took
            self.channel.send_frame(frame)

    def attached(self, order: wire.Attach, descriptors: list[int]) -> SharedRegion:
        """Return the region that an order names, mapped into this process."""
        self.block, _ = [], self.regions.pop(order.region, None)  # there may not be room for both
        if not order.handle:
            return SharedRegion.mapped(descriptors[0], order.size)
        assert self.memory is not None
        return SharedRegion.opened(self.memory, order.handle)

    def sanitize(self, order: wire.Sanitize) -> wire.WireMessage:
        self.sanitized = True
        inline.configure(cache=Path(order.builds), flags=tuple(order.flags))
        for name in order.variables:  # compilers must not run under the sanitizer
            os.environ.pop(name, None)
        return wire.Ready()

    def plant(self, order: wire.Plant) -> wire.WireMessage:
        self.adapter.plant(order.error)
        return wire.Ready()

    def load(self, order: wire.Load) -> wire.WireMessage:
        module = types.ModuleType(PROGRAM)
        module.__file__ = order.filename
        sys.modules[PROGRAM] = module  # torch.compile, dataclasses and inspect look there
        linecache.cache[order.filename] = (
            len(order.source), None, order.source.splitlines(keepends=True), order.filename,
        )  # fmt: skip
        if "cpp_extension" in order.source:  # only for programs that use it, because importing it takes time
            try_slim_headers()
        with kept_in(self.build_cache / "extensions"):
            code = compile(order.source, order.filename, "exec", dont_inherit=True)  # not our own `__future__` imports
            exec(code, module.__dict__)  # noqa: S102 - what this process is for
        self.program = getattr(module, order.entry)
        return wire.Ready()

    def construct(self, order: wire.Construct) -> wire.WireMessage:
        seed_generators(order.seed)
        # cloned: a module may keep an argument, and later values are written to the same shared memory
        arguments = cloned(self.regions["inputs"].unpack(order.arguments, HOST))
        model = self.program(*arguments).to(self.device)
        self.model, self.called = model, False
        state = {name: describe(value) for name, value in _tensors_of_state(model).items()}
        self.compiled = bool(order.compile_mode)
        if self.compiled:
            if order.hasty:
                os.environ.update(haste(order.compile_mode, on_host=torch.device(self.device) == HOST))
            self.model = torch.compile(model, mode=order.compile_mode)
        return wire.Constructed(state)

    def set_state(self, order: wire.SetState) -> wire.WireMessage:
        values = self.regions["inputs"].unpack(order.state)
        own = _tensors_of_state(self.model)
        with torch.no_grad():
            for name, target in own.items():
                # a lazy parameter gets its memory from load_state_dict
                if name in values and not is_lazy(target):
                    target.copy_(values[name])
            # a program that derives values from its weights may do so in a hook of load_state_dict
            try:
                self.model.load_state_dict(values, strict=False)
            except Exception:
                if own.keys() <= values.keys():
                    raise
                # a hook may need all entries, where only some have changed
                self.model.load_state_dict({**self.model.state_dict(), **values}, strict=False)
        return wire.Ready()

    def call(self, order: wire.Call) -> wire.WireMessage:
        arguments = self.regions["inputs"].unpack(order.arguments, self.device)
        # a sanitizer guards the heap, but not the edges of shared memory; on a device, arguments are copies already
        if self.sanitized and torch.device(self.device) == HOST:
            arguments = cloned(arguments)
        self.outputs = self.outputs[-1:]  # the previous output stays, because the referee may read it again
        if order.poison:
            # freed at once, so that an uninitialised output of the candidate most likely holds NaN
            torch.full((order.poison // 4,), float("nan"), device=self.device)
        if order.seed is not None:
            seed_generators(order.seed)
        with torch.no_grad():
            before = CallerSettings(draws=order.seed is not None)
            output = self.model(*arguments)
            changes = before.changes()
            found = self._consumed(output)
            self.adapter.synchronize()
        if not self.called:  # a module that is completed in its first call may draw weights
            changes = [change for change in changes if change[0] != GENERATOR]
        self.called = True
        self.outputs.append(output)
        return self._result(found, arguments, output, changes)

    def _consumed(self, output: Any) -> Any:
        """Return a copy of an output on a device, made at once on the current stream, as a caller would use it.

        If the program computes on another stream without waiting for it, this copy is wrong. On a host, and for large
        outputs or tensor subclasses, the output itself is returned.
        """
        tensors = tensors_in(output)
        plain = all(type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in tensors)
        small = sum(tensor.numel() * tensor.itemsize for tensor in tensors) <= CONSUMED_BYTES
        return cloned(output) if self.memory is not None and plain and small else output

    def prepare(self, order: wire.Prepare) -> wire.WireMessage:
        for slot, index in order.keep:
            more = slot not in self.kept
            # other objects for the same memory, as with a caller that keeps a view of an output
            self.kept[slot] = pytree.tree_map(_detached, self.outputs[index])
            # allocates and frees as much memory as is kept now, so that no timed call has to ask the system for it
            for tensor in tensors_in(self.kept[slot]) if more else ():
                torch.zeros_like(tensor)
        self.outputs = []
        if self.memory is not None and self.shown is not None:
            if not self.timed:  # this process no longer needs the memory of single calls, but others do
                self.memory.trim()
                self.shown.forget()
            self.shown.refresh()
        self.timed = True
        # varies the addresses of outputs, as the referee varies those of inputs
        self.shift = torch.empty(64 * secrets.randbelow(1024), dtype=torch.uint8)
        self.block = [tuple(self.regions["inputs"].unpack(arguments, self.device)) for arguments in order.sets]
        if order.flush:
            self.adapter.flush()
        self.written_state = list(order.state)
        return wire.Ready()

    def go(self, order: wire.Go) -> wire.WireMessage:
        model, outputs = self.model, []
        calls, self.block = self.block[: order.calls], self.block[order.calls :]
        gc.disable()  # garbage collection comes at random times, and can take as long as a call
        if order.seed is not None:  # inside the timed part: a call must not know its seed before
            seed_generators(order.seed)
        with torch.no_grad():
            start = time.perf_counter_ns()
            read = self.adapter.stopwatch()
            if not calls:  # the cost of starting a block includes that the device switches to this process
                torch.zeros((), device=self.device)
            for arguments in calls:
                outputs.append(model(*arguments))  # noqa: PERF401 - a comprehension would hide what is timed
            nanoseconds = read()
            self.calls_took = time.perf_counter_ns() - start
        gc.enable()
        state = self._state_of(self.written_state) if self.written_state else {}
        return wire.Done(nanoseconds, *self._kept(outputs, state), address(state), self.around)

    def watch(self, _: wire.Watch) -> wire.WireMessage:
        outputs: list[Any] = []

        def run() -> None:
            with torch.no_grad():
                outputs.extend(self.model(*arguments) for arguments in self.block)
            self.adapter.synchronize()

        kernels, busy = self.adapter.watch(run)
        rows = [(kernel.name[:MAX_KERNEL_NAME], kernel.launches, kernel.seconds) for kernel in kernels]
        return wire.Watched(rows, busy, *self._kept(outputs))

    def _kept(self, outputs: list[Any], state: Any = None) -> tuple[list[Any], list[Any]]:
        """Keep the outputs of a block. Returns their addresses, and the device allocations that contain them and this
        state."""
        if self.compiled:  # replaying a compiled call overwrites its earlier outputs; they are not checked
            outputs = outputs[-1:] * len(outputs)
        if any(tensor.is_conj() or tensor.is_neg() for tensor in tensors_in(outputs[:1])):
            outputs = pytree.tree_map(_resolved, outputs)  # memory does not show a pending conjugation
            self.adapter.synchronize()
        self.outputs += outputs  # earlier calls of a paced block keep theirs: no call may overwrite them
        return addresses(outputs), [] if self.shown is None else self.shown.holding([*self.outputs, state, self.kept])

    def fetch(self, order: wire.Fetch) -> wire.WireMessage:
        return self._result(self.outputs[order.index], ())

    def fetch_state(self, order: wire.FetchState) -> wire.WireMessage:
        return self._result(self._state_of(order.names), ())

    def _state_of(self, names: list[str]) -> dict[str, torch.Tensor]:
        state = self.model.state_dict()
        return {name: state[name] for name in names if name in state}

    def record_profile(self, order: wire.RecordProfile) -> wire.WireMessage:
        arguments = self.regions["inputs"].unpack(order.arguments, self.device)

        def call() -> None:
            with torch.no_grad():
                self.model(*arguments)
            self.adapter.synchronize()

        spots, timeline = torch_profile.record(call, order.calls)
        return wire.Profiled(
            [(spot.name[:200], spot.calls, spot.seconds) for spot in spots],
            [(span.name[:200], round(1e9 * span.start), span.seconds) for span in timeline],
        )

    def explain(self, order: wire.Explain) -> wire.WireMessage:
        positions = [authored.Position(*each) for each in order.positions]
        return wire.Explained(authored.explain(inline.cxx.built(), positions).to_json())

    def count(self, order: wire.CountedCalls) -> wire.WireMessage:
        arguments = self.regions["inputs"].unpack(order.arguments, self.device)
        with torch.no_grad():
            for _ in range(UNCOUNTED_CALLS):
                self.model(*arguments)
            self.adapter.synchronize()
            with self.adapter.recording():
                for _ in range(order.calls):
                    self.model(*arguments)
                self.adapter.synchronize()
        return wire.Ready()

    def _result(
        self,
        output: Any,
        arguments: tuple[Any, ...],
        returned: Any = None,
        changes: Sequence[tuple[str, str, str]] = (),
    ) -> wire.WireMessage:
        """Return the answer with an output. `returned` is what the program returned, if `output` is a copy of it.

        `changes` are settings of torch that the call has changed.
        """
        if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in tensors_in(output)):
            return wire.Failed("foreign_output", "the output is a tensor subclass, not a plain tensor", "")
        aliases = _aliases(output if returned is None else returned, arguments)
        if "outputs" not in self.regions:
            return self._where_it_lies(output, aliases, changes)
        region = self.regions["outputs"]
        region.reset()

        def place(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            try:
                return region.pack(leaf.detach().to(region.flat.device).contiguous())
            except MemoryError:  # larger than any right answer: the referee needs only its shape
                return describe(leaf)

        placed = pytree.tree_map(place, output)
        if not region.flat.is_cpu:
            self.adapter.synchronize()
        return wire.Result(placed, aliases, settings=list(changes))

    def _where_it_lies(
        self, output: Any, aliases: list[tuple[int, int]], changes: Sequence[tuple[str, str, str]]
    ) -> wire.WireMessage:
        """Return the answer with the addresses of an output on a device. Tensors that cannot be shared are copied
        first."""
        assert self.memory is not None
        assert self.shown is not None
        memory, shown, home = self.memory, self.shown, torch.device(self.device).type
        self.placed = None
        shown.refresh()

        def place(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor) or (leaf.device.type == home and shown.shows(leaf)):
                return leaf
            flat = memory.allocate(max(leaf.numel() * leaf.itemsize, 1))
            return flat[: leaf.numel() * leaf.itemsize].view(leaf.dtype).view(leaf.shape).copy_(leaf.detach())

        self.placed = pytree.tree_map(place, output)
        self.adapter.synchronize()
        memory_now = shown.holding([self.placed, self.kept])
        return wire.Result(address(self.placed), aliases, memory_now, list(changes))


def _tensors_of_state(model: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a module's state dict. Other objects, from `get_extra_state`, are left out."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def _aliases(output: Any, arguments: Any) -> list[tuple[int, int]]:
    return sorted(find_aliases(output, arguments))


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def _resolved(leaf: Any) -> Any:
    return leaf.resolve_conj().resolve_neg() if isinstance(leaf, torch.Tensor) else leaf


def failure(error: BaseException) -> wire.Failed:
    """Return the message about an exception of the program: the compiler's errors, or the traceback without kforge's
    frames."""
    compiler_said = str(error) if isinstance(error, inline.CompileError) else build_log(error)
    if compiler_said is not None:
        return wire.Failed("compile", _first_line(compiler_said), compiler_said[-MAX_LOG:])
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_KFORGE)]
    log = "".join(traceback.format_list(frames) + traceback.format_exception_only(error))
    category = "compile" if isinstance(error, SyntaxError | inline.ToolchainError) else "raised"
    return wire.Failed(category, _first_line(f"{type(error).__name__}: {error}"), log[-MAX_LOG:])


_KFORGE = str(Path(inspect.getfile(platforms)).parents[1])
"""The folder of kforge's own code."""


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")[:500]


def rebuilt(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a named tuple of an input. Its class is the program's own one with these names, which may have methods, or
    a new one.

    None of the program's code runs here, because the order has not been carried out yet: neither a `__getattr__` nor a
    metaclass, a descriptor or a constructor.
    """
    module = sys.modules.get(PROGRAM)
    own = vars(module).get(name) if type(module) is types.ModuleType else None
    if type(own) is not type or not _is_named_tuple(own, fields):
        own = _named_tuple(name, fields)
    return tuple.__new__(own, values)


def _is_named_tuple(own: type, fields: tuple[str, ...]) -> bool:
    found = inspect.getattr_static(own, "_fields", None)
    return tuple in own.__mro__ and type(found) is tuple and found == fields


@cache
def _named_tuple(name: str, fields: tuple[str, ...]) -> type[tuple[Any, ...]]:
    # rename: a class of the problem may have field names that namedtuple refuses, such as `_x`
    return namedtuple(name, fields, rename=True)


def serve(descriptor: int) -> None:
    """Run a worker in this process until the referee is gone. `descriptor` is its end of the channel."""
    faulthandler.enable()
    channel = Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME, rebuild=rebuilt)
    begin, _ = channel.receive_with_descriptor(FOREVER)
    assert isinstance(begin, wire.Begin)
    build_cache = Path(begin.build_cache)
    inline.configure(cache=build_cache / "inline", flags=tuple(begin.flags))
    platform = platforms.load_folder(Path(begin.platform_folder))
    platform.adapter.prepare()
    os.environ.update(platform.adapter.build_environment(build_cache))
    platform.adapter.use_precision(begin.precision)
    channel.send(wire.Ready())
    try:
        Worker(channel, platform, build_cache).serve()
    except (SideDied, ChannelError):
        return  # the referee has closed the channel
