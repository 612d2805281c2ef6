"""Binds the functions of the driver API (libcuda) that a launch needs: devices, contexts, modules and functions.

All work is done in the primary context of a device, which torch uses as well.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from kforge.inline.errors import LaunchError, ToolchainError
from kforge.inline.shared_objects import origin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SONAMES = ("libcuda.so.1", "libcuda.so")

# CUdevice_attribute
MAX_THREADS_PER_GROUP, MULTIPROCESSORS, L2_BYTES, THREADS_PER_MULTIPROCESSOR = 1, 16, 38, 39
MEMORY_KILOHERTZ, MEMORY_BITS = 36, 37
WARP_THREADS, CLOCK_KILOHERTZ, SHARED_PER_MULTIPROCESSOR, REGISTERS_PER_MULTIPROCESSOR = 10, 13, 81, 82
CAPABILITY_MAJOR, CAPABILITY_MINOR, SHARED_OPT_IN = 75, 76, 97
# CUfunction_attribute
FUNCTION_MAX_THREADS, FUNCTION_STATIC_SHARED, FUNCTION_LOCAL, FUNCTION_REGISTERS = 0, 1, 3, 4
FUNCTION_DYNAMIC_SHARED = 8

_FAULTED = frozenset({700, 714, 715, 716, 717, 718, 719})
"""Error codes that mean that an earlier kernel failed. The context is lost, and every later launch fails."""


class LaunchPlan:
    """All parameters of a launch except the kernel's arguments."""

    __slots__ = ("arguments", "works")

    def __init__(
        self, function: ctypes.c_void_p, groups: tuple[int, int, int], size: tuple[int, int, int], shared: int
    ) -> None:
        self.works = all(groups)
        self.arguments = (function, *groups, *size, shared)


class Driver:
    """The initialized driver library. Use `load` to get it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._contexts: dict[int, ctypes.c_void_p] = {}
        library.cuLaunchKernel.argtypes = [
            ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
        library.cuGetErrorName.argtypes = library.cuGetErrorString.argtypes = [ctypes.c_int, ctypes.c_void_p]

    # --- the machine ----------------------------------------------------------------------------------------

    @property
    def file(self) -> Path | None:
        return origin(self._library.cuInit)

    def version(self) -> tuple[int, int]:
        """Return the newest CUDA version that this driver supports."""
        number = ctypes.c_int()
        self.check(self._library.cuDriverGetVersion(ctypes.byref(number)), "asking for the driver's version")
        return number.value // 1000, number.value % 1000 // 10

    def device_count(self) -> int:
        number = ctypes.c_int()
        self.check(self._library.cuDeviceGetCount(ctypes.byref(number)), "counting devices")
        return number.value

    def name(self, index: int) -> str:
        text = ctypes.create_string_buffer(256)
        self.check(self._library.cuDeviceGetName(text, len(text), self._device(index)), "asking for a device's name")
        return text.value.decode()

    def bus_address(self, index: int) -> str:
        """Return the device's PCI address, such as `0000:1b:00.0`. It is the only name of a device on which all tools
        agree."""
        text, device = ctypes.create_string_buffer(32), self._device(index)
        self.check(self._library.cuDeviceGetPCIBusId(text, len(text), device), "asking for a device's address")
        return text.value.decode()

    def attribute(self, index: int, which: int) -> int:
        number = ctypes.c_int()
        device = self._device(index)
        self.check(self._library.cuDeviceGetAttribute(ctypes.byref(number), which, device), "asking for an attribute")
        return number.value

    def architecture(self, index: int) -> str:
        """Return the device's architecture, such as `sm_90`."""
        return f"sm_{self.attribute(index, CAPABILITY_MAJOR)}{self.attribute(index, CAPABILITY_MINOR)}"

    # --- contexts and functions -----------------------------------------------------------------------------

    @contextmanager
    def context(self, index: int) -> Iterator[None]:
        """Make the primary context of a device current inside the `with` block."""
        entered = self.enter(index)
        try:
            yield
        finally:
            if entered:
                self.leave()

    def enter(self, index: int) -> bool:
        """Make the primary context of a device current, unless it already is. A new thread has no current context.

        Returns whether the current context was changed. If it was, the caller must call `leave`.
        """
        context, current = self._contexts.get(index) or self._primary(index), ctypes.c_void_p()
        self.check(self._library.cuCtxGetCurrent(ctypes.byref(current)), "asking for the context")
        if current.value == context.value:
            return False
        self.check(self._library.cuCtxPushCurrent_v2(context), "entering the context")
        return True

    def leave(self) -> None:
        left = ctypes.c_void_p()
        self.check(self._library.cuCtxPopCurrent_v2(ctypes.byref(left)), "leaving the context")

    def load_module(self, image: bytes) -> ctypes.c_void_p:
        """Load a cubin into the current context. It is never unloaded, because its kernels may be running at any
        time."""
        module = ctypes.c_void_p()
        self.check(self._library.cuModuleLoadData(ctypes.byref(module), image), "loading the built kernels")
        return module

    def function(self, module: ctypes.c_void_p, symbol: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        found = self._library.cuModuleGetFunction(ctypes.byref(function), module, symbol.encode())
        self.check(found, f"looking for {symbol}")
        return function

    def function_attribute(self, function: ctypes.c_void_p, which: int) -> int:
        number = ctypes.c_int()
        self.check(self._library.cuFuncGetAttribute(ctypes.byref(number), which, function), "asking for an attribute")
        return number.value

    def allow_shared(self, function: ctypes.c_void_p, size: int) -> None:
        """Allow launches with more dynamic shared memory than the default limit of 48 KB."""
        self.check(self._library.cuFuncSetAttribute(function, FUNCTION_DYNAMIC_SHARED, size), "allowing shared memory")

    def groups_per_multiprocessor(self, function: ctypes.c_void_p, threads: int, shared: int) -> int:
        number = ctypes.c_int()
        query = self._library.cuOccupancyMaxActiveBlocksPerMultiprocessor
        answer = query(ctypes.byref(number), function, threads, ctypes.c_size_t(shared))
        self.check(answer, "asking for the occupancy")
        return number.value

    def launch(self, plan: LaunchPlan, stream: int, parameters: Any) -> int:
        """Launch a kernel and return the status of cuLaunchKernel: 0 for success, also if the launch has no threads."""
        if not plan.works:
            return 0  # there is nothing to launch; the driver would report an invalid value
        status: int = self._library.cuLaunchKernel(*plan.arguments, stream, parameters, None)
        return status

    def reset_persisting_cache(self, index: int) -> None:
        """Reset persisting lines of the L2 cache to normal."""
        with self.context(index):
            self.check(self._library.cuCtxResetPersistingL2Cache(), "resetting the persisting cache lines")

    def call(self, function: str, *arguments: object) -> None:
        """Call another function of the driver by name, in the current context. Raises LaunchError if it fails."""
        self.check(getattr(self._library, function)(*arguments), function)

    # --- errors ---------------------------------------------------------------------------------------------

    def check(self, status: int, action: str) -> None:
        if status:
            self.fail(status, action)

    def fail(self, status: int, action: str) -> NoReturn:
        """Raise LaunchError with the driver's own message for this status."""
        lost = "; an earlier kernel failed, and no kernel can run in this process any more"
        raise LaunchError(f"{action} failed: {self.describe(status)}{lost if status in _FAULTED else ''}")

    def describe(self, status: int) -> str:
        name, words = ctypes.c_char_p(), ctypes.c_char_p()
        if self._library.cuGetErrorName(status, ctypes.byref(name)) or not name.value:
            return f"result {status}"
        self._library.cuGetErrorString(status, ctypes.byref(words))
        return f"{name.value.decode()} ({(words.value or b'').decode()})"

    def _device(self, index: int) -> int:
        device = ctypes.c_int()
        self.check(self._library.cuDeviceGet(ctypes.byref(device), index), f"looking for device {index}")
        return device.value

    def _primary(self, index: int) -> ctypes.c_void_p:
        context = ctypes.c_void_p()
        retained = self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), self._device(index))
        self.check(retained, f"opening device {index}")
        return self._contexts.setdefault(index, context)


@cache
def load() -> Driver:
    """Return the driver of this machine. Raises ToolchainError if no driver is installed, or if it finds no device."""
    for name in SONAMES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        driver = Driver(library)
        status = library.cuInit(0)
        if status:
            raise ToolchainError(f"the NVIDIA driver does not start: {driver.describe(status)}")
        if not driver.device_count():
            raise ToolchainError("the NVIDIA driver sees no GPU")
        return driver
    raise ToolchainError(f"no NVIDIA driver found ({SONAMES[0]} is not installed)")
