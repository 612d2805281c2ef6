"""Runs the kernels of a Metal source on the CPU, in an emulator. (torch, at a launch)"""

from __future__ import annotations

import ctypes
import operator
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kforge.inline.errors import CompileError, LaunchError
from kforge.inline.library import Library
from kforge.inline.metal import arguments, compiler, faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kforge.inline.metal.kernels import KernelFunction

MAX_GROUP_THREADS = 1024
SIMD_WIDTH = 32
SERIAL_THREADS = 1 << 14
"""Launches with fewer threads than this run on one thread of the operating system."""
_THREE = ctypes.c_uint * 3


@dataclass(frozen=True)
class Options:
    """Settings of the emulation of launches."""

    order: int = 0
    """The order in which threads run: 0 is forward, 1 is backward, and any other number is the seed of a random
    order."""
    workers: int = 0
    """Number of operating system threads that run threadgroups; 0 chooses it for each launch. Kernels with atomics
    always use one thread, so that results do not vary."""
    races: bool = True
    """Whether to detect data races, by comparing the memory accesses of different threads."""


_options = Options()


@contextmanager
def options(**changes: Any) -> Iterator[None]:
    """Change options for the launches inside a `with` block: `with metal.options(order=1): ...`."""
    global _options
    before = _options
    _options = replace(before, **changes)
    try:
        yield
    finally:
        _options = before


class _Region(ctypes.Structure):
    _fields_ = (
        ("original", ctypes.c_void_p), ("size", ctypes.c_uint64), ("granule", ctypes.c_uint32),
        ("writable", ctypes.c_uint32), ("base", ctypes.c_void_p), ("shadow", ctypes.c_void_p),
        ("mapping", ctypes.c_void_p), ("mapped", ctypes.c_uint64), ("written", ctypes.c_int),
    )  # fmt: skip


class _Launch(ctypes.Structure):
    _fields_ = (
        ("run", ctypes.c_void_p), ("grid", _THREE), ("group_size", _THREE), ("arguments", ctypes.c_void_p),
        ("regions", ctypes.c_void_p), ("region_count", ctypes.c_int), ("argument_count", ctypes.c_int),
        ("argument_region", ctypes.c_void_p), ("argument_offset", ctypes.c_void_p),
        ("argument_granule", ctypes.c_void_p), ("argument_names", ctypes.c_void_p), ("workers", ctypes.c_int),
        ("order", ctypes.c_uint), ("races", ctypes.c_int), ("fault", faults.Fault),
        ("faulted", ctypes.c_int), ("fenced", ctypes.c_int), ("groups", _THREE),
        ("next_group", ctypes.c_uint64),
    )  # fmt: skip


class _Native:
    """The loaded library, with the function constants that all its kernels share."""

    def __init__(self, built: compiler.Built) -> None:
        self.built = built
        try:
            self.code = ctypes.CDLL(str(built.library))
        except OSError as error:
            raise CompileError(f"the built library cannot be loaded: {error}") from error
        self.code.kf_launch.argtypes = [ctypes.c_void_p]
        self.lock = threading.Lock()

    def set_constants(self, function: KernelFunction, values: Mapping[int, Any]) -> None:
        """Set every function constant to its value. Raises LaunchError if one that the kernel needs has none."""
        kernel = function.name
        for number, constant in enumerate(self.built.translation.constants):
            get = self.code[f"kf_constant_{number}"]
            get.restype = ctypes.c_void_p
            facts, defined = (ctypes.c_int * 2)(), ctypes.POINTER(ctypes.c_bool)()
            at = get(facts, ctypes.byref(defined))
            defined[0] = constant.index in values
            if not defined[0]:
                if constant.name in function.constants and not self.built.translation.asks_for_constants:
                    raise LaunchError(
                        f"{kernel}: function constant {constant.name} (index {constant.index}) has no value; "
                        f"use kernel.specialize({{{constant.index}: ...}})"
                    )
                ctypes.memset(at, 0, facts[1])
                continue
            content = arguments.constant_bytes(
                f"{kernel}: function constant {constant.name}", facts[0], values[constant.index]
            )
            ctypes.memmove(at, content, min(len(content), facts[1]))


def build(source: str, flags: tuple[str, ...]) -> Library:
    """Return the library compiled for the emulator, from the cache if possible.

    Raises CompileError if the source does not compile or has no kernel, and ToolchainError if there is no clang or no
    writable cache.
    """
    native = _Native(compiler.build(source, flags))
    kernels = {
        one.name: MetalKernel(native, number, one, (_kernel, (source, flags, one.name)))
        for number, one in enumerate(native.built.translation.kernels)
    }
    return Library(kernels, (build, (source, flags)))


def _kernel(source: str, flags: tuple[str, ...], name: str, constants: Mapping[int, Any] | None = None) -> Any:
    kernel = getattr(build(source, flags), name)
    return kernel if constants is None else kernel.specialize(constants)


class MetalKernel:
    """One kernel function. It takes the arguments of a kernel of torch.mps, and a call returns when the kernel has
    finished."""

    def __init__(
        self, native: _Native, number: int, function: KernelFunction, recipe: tuple[Any, ...],
        constants: Mapping[int, Any] | None = None,
    ) -> None:  # fmt: skip
        self._native = native
        self._number = number
        self._function = function
        self._recipe = recipe
        self._constants = dict(constants or {})
        self._run = ctypes.cast(native.code[f"kf_run_{number}"], ctypes.c_void_p).value
        raw = (ctypes.c_int * (5 * max(1, len(function.parameters))))()
        native.code[f"kf_parameters_{number}"](raw)
        found = {
            id(one): arguments.Description.read(
                one.name or f"argument {place}", one.index, raw[5 * place : 5 * place + 5]
            )
            for place, one in enumerate(function.parameters)
        }
        self._buffers = [found[id(one)] for one in function.buffers]
        self._memories = [found[id(one)] for one in function.memories]

    @property
    def max_threads_per_threadgroup(self) -> int:
        return self._function.max_threads

    @property
    def thread_execution_width(self) -> int:
        return SIMD_WIDTH

    def specialize(self, constants: Mapping[int | str, Any]) -> MetalKernel:
        """Return the kernel with these values of function constants, given by index or by name. Raises LaunchError for
        an unknown one."""
        names = {one.name: one.index for one in self._native.built.translation.constants}
        chosen = {names.get(key, key) if isinstance(key, str) else key: value for key, value in constants.items()}
        for key in chosen:
            if key not in names.values():
                raise LaunchError(f"{self._function.name}: there is no function constant {key!r}")
        numbers = {int(key): value for key, value in chosen.items()}
        source, flags, name = self._recipe[1][:3]
        recipe = (_kernel, (source, flags, name, numbers))
        return MetalKernel(self._native, self._number, self._function, recipe, numbers)

    def __call__(
        self,
        *given: Any,
        threads: Any = None,
        group_size: Any = None,
        arg_casts: Any = None,
        threadgroup_memory: Any = (),
    ) -> None:
        """Run the kernel on tensors in host memory, and return when it has finished.

        `threads` is the size of the whole grid; by default it is the number of elements of the first tensor.
        `threadgroup_memory` has the size in bytes of each parameter in threadgroup memory. Raises LaunchError if the
        arguments do not fit. Also raises it if the kernel does something invalid, such as an access out of bounds or a
        race; the message then names the source line.
        """
        name = self._function.name
        grid, size = self._geometry(given, threads, group_size)
        placed = arguments.buffers(name, self._buffers, given, arg_casts)
        memories = self._memory_sizes(threadgroup_memory)
        launch, regions, keep = self._launch(grid, size, placed, memories)
        with self._native.lock:
            self._native.set_constants(self._function, self._constants)
            status = self._native.code.kf_launch(ctypes.addressof(launch))
        del keep
        if status == 1:
            raise LaunchError(f"{name}: not enough memory for the emulation")
        if status:
            names = [" and ".join(one.names) for one in placed]
            raise LaunchError(faults.message(name, launch.fault, self._native.built.library, names))
        del regions

    def __reduce__(self) -> tuple[Any, ...]:
        return self._recipe

    def _launch(
        self, grid: tuple[int, ...], size: tuple[int, ...], placed: Sequence[arguments.Buffer], memories: Sequence[int]
    ) -> tuple[_Launch, Any, Any]:
        """Return the structure that the runtime reads, and the objects that must stay alive while it does."""
        total = len(self._buffers) + len(memories)
        regions = (_Region * max(1, len(placed)))()
        where, offsets = (ctypes.c_int * max(1, total))(), (ctypes.c_uint64 * max(1, total))()
        granules, values = (ctypes.c_uint32 * max(1, total))(), (ctypes.c_void_p * max(1, total))()
        names = (ctypes.c_char_p * max(1, total))()
        for number, one in enumerate(placed):
            regions[number].original, regions[number].size = one.address, one.size
            regions[number].granule, regions[number].writable = one.granule, one.writable
            for slot, offset in one.members:
                where[slot], offsets[slot] = number, offset
        for number, (amount, parameter) in enumerate(zip(memories, self._memories, strict=True)):
            slot = len(self._buffers) + number
            where[slot], offsets[slot], granules[slot] = -1, amount, parameter.granule
            names[slot] = parameter.name.encode()
        chosen = _options
        launch = _Launch(
            run=self._run, grid=_THREE(*grid), group_size=_THREE(*size), arguments=ctypes.addressof(values),
            regions=ctypes.addressof(regions), region_count=len(placed), argument_count=total,
            argument_region=ctypes.addressof(where), argument_offset=ctypes.addressof(offsets),
            argument_granule=ctypes.addressof(granules), argument_names=ctypes.addressof(names),
            workers=self._workers(grid), order=chosen.order, races=chosen.races,
        )  # fmt: skip
        return launch, regions, (where, offsets, granules, values, names)

    def _workers(self, grid: tuple[int, ...]) -> int:
        # With several workers, the order of atomic additions, and so the result, would differ from run to run.
        if self._native.built.translation.has_atomics:
            return 1
        if _options.workers:
            return _options.workers
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(4, processors) if grid[0] * grid[1] * grid[2] >= SERIAL_THREADS else 1

    def _geometry(self, given: Sequence[Any], threads: Any, group_size: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        import torch

        name, limit = self._function.name, self._function.max_threads
        if threads is None:
            threads = next((one.numel() for one in given if isinstance(one, torch.Tensor)), None)
            if threads is None:
                raise LaunchError(f"{name}: pass threads=; without a tensor among the arguments it has no default")
        grid = _numbers(name, "threads", threads, 0)
        if group_size is None:
            first = max(1, min(grid[0], limit))
            second = max(1, min(grid[1], limit // first)) if len(grid) > 1 else 1
            size = (first, second, 1)[: len(grid)]
        else:
            size = _numbers(name, "group_size", group_size, 1)
        if len(size) != len(grid):
            raise LaunchError(
                f"{name}: threads and group_size must have the same length, got {threads!r} and {group_size!r}"
            )
        count = 1
        for one in size:
            count *= one
        if count > limit:
            raise LaunchError(f"{name}: a threadgroup has at most {limit} threads, got group_size={group_size!r}")
        return (*grid, 1, 1)[:3], (*size, 1, 1)[:3]

    def _memory_sizes(self, given: Any) -> list[int]:
        sizes = list(given) if isinstance(given, list | tuple) else [given]
        if len(sizes) != len(self._memories):
            raise LaunchError(
                f"{self._function.name}: has {len(self._memories)} parameters in threadgroup memory, "
                f"threadgroup_memory must list the bytes of each, got {given!r}"
            )
        if any(not isinstance(one, int) or one <= 0 for one in sizes) or sum(sizes) > faults.THREADGROUP_LIMIT:
            limit = faults.THREADGROUP_LIMIT
            raise LaunchError(
                f"{self._function.name}: threadgroup_memory must be 1 to {limit} bytes in all, got {given!r}"
            )
        return sizes


def _numbers(name: str, what: str, value: Any, least: int) -> tuple[int, ...]:
    try:
        numbers = tuple(operator.index(one) for one in (value if isinstance(value, tuple | list) else (value,)))
    except TypeError:
        numbers = ()
    if not 1 <= len(numbers) <= 3 or min(numbers) < least or max(numbers) >= 2**32:
        kind = "numbers from 0 on" if least == 0 else "positive numbers"
        raise LaunchError(f"{name}: {what} must be one to three {kind}, got {value!r}")
    return numbers
