"""Kernels of an OpenCL program: checks the arguments of a call and runs the kernel on the device. (torch, at a
launch)"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from kforge.inline import abi, geometry, launches
from kforge.inline.arguments import HOST, Arguments, Memory, check_overlap
from kforge.inline.errors import CompileError, LaunchError
from kforge.inline.grammar import Signature
from kforge.inline.library import Library
from kforge.inline.opencl.device import Device, one_line, open_device
from kforge.inline.opencl.translation import translate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.inline.opencl.translation import KernelParameter


def build(source: str, flags: tuple[str, ...]) -> Library:
    """Return the library compiled for this process's device, from the cache if possible.

    Raises CompileError if the source does not compile or has no kernel that can be called, and ToolchainError if there
    is no `pyopencl`, no driver or no writable cache.
    """
    device = open_device()
    program = translate(device, source, flags)
    kernels = {
        name: OpenclKernel(device, device.opencl.Kernel(program.native, name), name, parameters,
                           (_kernel, (source, flags, name)))
        for name, parameters in program.kernels.items()
    }  # fmt: skip
    if not kernels:
        raise CompileError(
            "the source has no kernel: write one as "
            "__kernel void name(__global const float* x, __global float* out, int n) { ... }"
        )
    return Library(kernels, (build, (source, flags)))


def _kernel(source: str, flags: tuple[str, ...], name: str) -> Any:
    return getattr(build(source, flags), name)


class OpenclKernel:
    """One `__kernel` function that can be launched."""

    def __init__(
        self, device: Device, native: Any, name: str, parameters: Sequence[KernelParameter], recipe: tuple[Any, ...]
    ) -> None:
        self._device = device
        self._native = native
        self._recipe = recipe
        placed = list(enumerate(parameters))
        self._local = [index for index, one in placed if one.space == "local"]
        passed = [(index, one) for index, one in placed if one.space != "local"]
        read = tuple(one.read(f"{name}: parameter {index + 1}") for index, one in passed)
        void = abi.element(["void"])
        assert void is not None
        self.signature = Signature(name, read, void)
        self._tensors = [(index, at, one.constant) for at, (index, one) in enumerate(passed) if one.stars]
        self._numbers = [(index, at, read[at].element.ctype) for at, (index, one) in enumerate(passed) if not one.stars]
        self._arguments: Arguments | None = None
        asked = device.opencl.kernel_work_group_info
        self._most_threads: int = native.get_work_group_info(asked.WORK_GROUP_SIZE, device.native)
        required = native.get_work_group_info(asked.COMPILE_WORK_GROUP_SIZE, device.native)
        self._required: geometry.Three | None = tuple(required) if any(required) else None

    def __call__(self, *arguments: Any, threads: Any, group_size: Any = None, shared: Any = ()) -> None:
        """Run the kernel on tensors in host memory, and return when it has finished.

        `threads` and `group_size` are a number or up to three numbers; `threads` is rounded up to whole groups. By
        default, `group_size` is what the source requires, or 256, or less if the kernel needs too many resources.
        `shared` has the size in bytes of each parameter in `__local` memory. Raises LaunchError if an argument does not
        fit the kernel or the device.
        """
        if self._arguments is None:
            self._arguments = Arguments(self.signature, HOST)
        values = self._arguments.convert(arguments)
        size = self._group(group_size)
        groups = geometry.grid(self.signature.name, threads, size, self._device.limits)
        local = self._shared(shared)
        if not all(groups):
            return
        whole = tuple(count * length for count, length in zip(groups, size, strict=True))
        opencl = self._device.opencl
        try:
            with self._device.lock:
                self._run(values, arguments, local, whole, size)
        except opencl.Error as error:
            raise LaunchError(f"{self.signature.name}: the launch failed: {one_line(error)}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        # A module that holds a kernel can then be copied and pickled, as one that holds a library can.
        return self._recipe

    def _run(
        self, values: list[Any], arguments: tuple[Any, ...], local: list[int], whole: tuple[int, ...],
        size: tuple[int, ...],
    ) -> None:  # fmt: skip
        opencl, queue, native = self._device.opencl, self._device.queue, self._native
        memories = [Memory(values[at], arguments[at].nbytes) for _, at, _ in self._tensors]
        if not self._device.in_host_memory:
            check_overlap(self.signature.name, memories)
        buffers: dict[Memory, Any] = {}
        written: dict[Memory, Any] = {}
        for (index, _, constant), memory in zip(self._tensors, memories, strict=True):
            buffer = buffers.get(memory) or buffers.setdefault(memory, self._buffer(memory))
            native.set_arg(index, buffer)
            if not constant and memory.size:
                written[memory] = buffer
        for index, at, ctype in self._numbers:
            native.set_arg(index, ctype(values[at]))
        for index, amount in zip(self._local, local, strict=True):
            native.set_arg(index, opencl.LocalMemory(amount))
        event = opencl.enqueue_nd_range_kernel(queue, native, whole, size)
        for memory, buffer in written.items():
            # mapping the buffer makes sure that the host memory from which it was made has the kernel's results
            mapped, _ = opencl.enqueue_map_buffer(
                queue, buffer, opencl.map_flags.READ, 0, (memory.size,), "u1", "C", None, None, False
            )
            mapped.base.release(queue)
        queue.finish()
        if launches.recording():
            launches.note(self.signature.name, event.profile.start, event.profile.end)

    def _buffer(self, memory: Memory) -> Any:
        opencl, flags = self._device.opencl, self._device.opencl.mem_flags
        if not memory.size:  # a buffer has at least one byte
            return opencl.Buffer(self._device.context, flags.READ_WRITE, 1)
        content = (ctypes.c_char * memory.size).from_address(memory.address)
        return opencl.Buffer(self._device.context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=content)

    def _group(self, group_size: Any) -> geometry.Three:
        name, limits = self.signature.name, self._device.limits
        if group_size is None:
            return self._required or (min(256, self._most_threads), 1, 1)
        size = geometry.group(name, group_size, limits)
        if self._required is not None and size != self._required:
            raise LaunchError(f"{name}: its source requires groups of {self._required}, got group_size={group_size!r}")
        count = size[0] * size[1] * size[2]
        if count > self._most_threads:
            raise LaunchError(f"{name}: at most {self._most_threads} threads per group on this device, got {count}")
        return size

    def _shared(self, given: Any) -> list[int]:
        """Return the size in bytes of each parameter in local memory. Raises LaunchError if `given` does not
        have one size for each."""
        sizes = list(given) if isinstance(given, list | tuple) else [given] if given else []
        name, most = self.signature.name, self._device.shared_bytes
        if len(sizes) != len(self._local):
            count = len(self._local)
            raise LaunchError(
                f"{name}: has {count} parameter{'' if count == 1 else 's'} in __local memory; "
                f"shared must have the bytes of each, got {given!r}"
            )
        if any(type(one) is not int or one <= 0 for one in sizes) or sum(sizes) > most:
            raise LaunchError(f"{name}: shared must be 1 to {most} bytes in all on this device, got {given!r}")
        return sizes
