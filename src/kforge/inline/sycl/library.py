"""Kernels of a SYCL program: checks the arguments of a call and runs the kernel on the device. (torch, at a launch)"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from kforge.inline import configuration, diagnostics, geometry, headers, launches
from kforge.inline.arguments import HOST, Arguments, Memory, check_overlap
from kforge.inline.errors import CompileError, LaunchError
from kforge.inline.library import Library
from kforge.inline.sycl import declarations
from kforge.inline.sycl.device import open_device
from kforge.inline.sycl.launcher import READ, SCALAR, WRITTEN, Argument

if TYPE_CHECKING:
    from kforge.inline.sycl.declarations import Declared
    from kforge.inline.sycl.device import Device

ALWAYS = ("-ffp-model=precise",)
"""Flags of every build. Without this one the compiler may assume that there is no NaN and no infinity."""
_DEFAULT_GROUP = 256
SOURCE = "kernel.cpp"
"""The name of the source in messages, as the prelude's last line has it."""
_PLACE = re.compile(r"\S*\brtc_\d+\.cpp:(?P<line>\d+)")
"""Matches a line number in a message of SYCL's compiler. It counts the lines of the prelude, too."""


def build(source: str, flags: tuple[str, ...]) -> Library:
    """Return the library compiled for this process's device. SYCL's runtime keeps what it compiled in the cache.

    Raises CompileError if the source does not compile or has no kernel that can be called, and ToolchainError if the
    packages, a C++ compiler or a device are missing.
    """
    found = declarations.parse(source)
    if not found:
        raise CompileError(
            f'the source has no kernel: write one as extern "C" {declarations.PROPERTY}((syclexp::nd_range_kernel<1>)) '
            "void name(const float* x, float* out, int n) { ... }"
        )
    device = open_device()
    program = _program(device, source, (*ALWAYS, *configuration.current().flags, *flags))
    kernels = {}
    for name, declared in found.items():
        native, most_threads = _native(device, program, name)
        if native is not None:
            kernels[name] = SyclKernel(device, native, declared, most_threads, (_kernel, (source, flags, name)))
    return Library(kernels, (build, (source, flags)))


def _kernel(source: str, flags: tuple[str, ...], name: str) -> Any:
    return getattr(build(source, flags), name)


@cache
def prelude() -> str:
    """Return the text that comes before every source. Lines are counted anew after it."""
    return (resources.files(__package__) / "prelude.hpp").read_text(encoding="utf-8")


def plain(log: str) -> str:
    """Return a compiler's log in the form of other compilers: not indented, and with lines of `kernel.cpp`."""
    before = prelude().count("\n")
    lines = [line.lstrip("\t") for line in log.splitlines()]
    return _PLACE.sub(lambda place: f"{SOURCE}:{int(place['line']) - before}", "\n".join(lines))


def _program(device: Device, source: str, options: tuple[str, ...]) -> ctypes.c_void_p:
    """Return a handle of the compiled program. It stays loaded until the process ends. Raises CompileError."""
    program = ctypes.c_void_p()
    text = f"{prelude()}{headers.expanded(source, SOURCE)}"
    error = device.native.kforge_build(text.encode(), "\n".join(options).encode(), ctypes.byref(program))
    if error is not None:
        log = plain(error.decode(errors="replace"))
        raise CompileError(diagnostics.trim(log), log)
    return program


def _native(device: Device, program: ctypes.c_void_p, name: str) -> tuple[ctypes.c_void_p | None, int]:
    """Return the handle of a kernel, and the largest number of threads that its groups may have.

    The handle is None if the preprocessor removed the kernel. Raises CompileError if the compiler refuses it.
    """
    kernel, most_threads = ctypes.c_void_p(), ctypes.c_uint64()
    error = device.native.kforge_kernel(program, name.encode(), ctypes.byref(kernel), ctypes.byref(most_threads))
    if error is not None:
        raise CompileError(f"{name}: the kernel cannot be loaded: {_one_line(error)}")
    return (kernel if kernel.value else None), most_threads.value


class SyclKernel:
    """One kernel function that can be launched."""

    def __init__(
        self, device: Device, native: ctypes.c_void_p, declared: Declared, most_threads: int, recipe: tuple[Any, ...]
    ) -> None:
        """`recipe` is a pair (function, arguments); calling the function makes an equal kernel. Copying and pickling
        use it."""
        self.signature = declared.signature
        self._device = device
        self._native = native
        self._most_threads = most_threads
        self._recipe = recipe
        parameters = self.signature.parameters
        kinds = [WRITTEN if one else READ for one in declared.written]
        self._tensors = [(at, kinds[at]) for at, one in enumerate(parameters) if one.pointer]
        self._numbers = [(at, one.element.ctype) for at, one in enumerate(parameters) if not one.pointer]
        self._block = Argument * len(parameters)
        self._arguments: Arguments | None = None

    def __call__(self, *arguments: Any, threads: Any, group_size: Any = None) -> None:
        """Run the kernel on tensors in host memory, and return when it has finished.

        `threads` and `group_size` are a number or up to three numbers, of which the first is the kernel's last
        dimension; `threads` is rounded up to whole groups. By default, `group_size` is 256, or less if the kernel needs
        too many resources. Raises LaunchError if an argument does not fit the kernel or the device.
        """
        if self._arguments is None:
            self._arguments = Arguments(self.signature, HOST)
        values = self._arguments.convert(arguments)
        size = self._group(group_size)
        groups = geometry.grid(self.signature.name, threads, size, self._device.limits)
        if not all(groups):
            return
        whole = [count * length for count, length in zip(groups, size, strict=True)]
        memories = [Memory(values[at], arguments[at].nbytes) for at, _ in self._tensors]
        if not self._device.in_host_memory:
            check_overlap(self.signature.name, memories)
        passed, three, times = self._block(), ctypes.c_uint64 * 3, (ctypes.c_uint64 * 2)()
        for (at, kind), memory in zip(self._tensors, memories, strict=True):
            passed[at] = Argument(memory.address, memory.size, kind)
        numbers = [(at, ctype(values[at])) for at, ctype in self._numbers]
        for at, number in numbers:
            passed[at] = Argument(ctypes.addressof(number), ctypes.sizeof(number), SCALAR)
        error = self._device.native.kforge_launch(self._native, passed, len(passed), three(*whole), three(*size), times)
        if error is not None:
            raise LaunchError(f"{self.signature.name}: the launch failed: {_one_line(error)}")
        if launches.recording():
            launches.note(self.signature.name, times[0], times[1])

    def __reduce__(self) -> tuple[Any, ...]:
        # A module that holds a kernel can then be copied and pickled, as one that holds a library can.
        return self._recipe

    def _group(self, group_size: Any) -> geometry.Three:
        if group_size is None:
            return min(_DEFAULT_GROUP, self._most_threads), 1, 1
        size = geometry.group(self.signature.name, group_size, self._device.limits)
        count = size[0] * size[1] * size[2]
        if count > self._most_threads:
            raise LaunchError(
                f"{self.signature.name}: at most {self._most_threads} threads per group on this device, got {count}"
            )
        return size


def _one_line(error: bytes) -> str:
    return " ".join(error.decode(errors="replace").split())
