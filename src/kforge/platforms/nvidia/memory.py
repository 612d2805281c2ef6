"""Shares device memory between processes by CUDA's interprocess handles. (torch)

An opened allocation stays readable when the process that made it frees it or dies. Its size comes from this process's
own driver and never from the other process, so that a worker cannot make the referee read outside an allocation.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING

import torch

from kforge.errors import PlatformError
from kforge.inline import LaunchError
from kforge.platforms.contracts import Allocation

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.inline.cuda.driver import Driver

HANDLE_BYTES = 64
PAGE = 2 << 20
"""Allocations are rounded up to this many bytes. Other processes map a partial page by smaller pages, and read it at
half the speed (a gigabyte in 406 µs instead of 236 µs on an H200)."""
MAX_EXPORTED = 4096
_BUFFER_ID = 7  # CU_POINTER_ATTRIBUTE_BUFFER_ID
_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag there is


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * HANDLE_BYTES),)


class _Bytes:
    """Memory in a form from which torch makes a tensor without a copy. The tensor keeps this object alive."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip


class NvidiaMemory:
    """Implements `DeviceMemory` for one NVIDIA GPU. The protocol says what each method returns and raises."""

    alignment = 512

    def __init__(self, driver: Driver, index: int) -> None:
        self._driver = driver
        self._index = index
        self._exported: dict[tuple[int, int], str] = {}

    def allocate(self, size: int) -> torch.Tensor:
        address, whole = ctypes.c_uint64(), ctypes.c_size_t(-(-size // PAGE) * PAGE)
        try:
            self._call("cuMemAlloc_v2", ctypes.byref(address), whole)
        except PlatformError:
            self.trim()  # as torch does before it gives up
            self._call("cuMemAlloc_v2", ctypes.byref(address), whole)
        return self._tensor(address.value, size, lambda: self._call("cuMemFree_v2", address))

    def export(self, address: int) -> Allocation:
        """Return the allocation that contains this address. Handles are cached, because this method runs inside timed
        blocks, where making handles of large outputs would be measurable."""
        base, size = self._range(address)
        key = (base, self._identity(base))
        if key not in self._exported:
            handle = _Handle()
            self._call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(base))
            self._exported[key] = bytes(handle).hex()
            if len(self._exported) > MAX_EXPORTED:
                del self._exported[next(iter(self._exported))]
        return Allocation(base, size, self._exported[key])

    def open(self, handle: str) -> torch.Tensor:
        theirs = _Handle()
        try:
            theirs.reserved[:] = bytes.fromhex(handle)
        except ValueError:  # not hexadecimal, or of another length
            raise PlatformError("this is not a handle of device memory") from None
        address = ctypes.c_uint64()
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), theirs, ctypes.c_uint(_PEER_ACCESS))
        _, size = self._range(address.value)
        return self._tensor(address.value, size, lambda: self._call("cuIpcCloseMemHandle", address))

    def free(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def within_reach(self) -> int:
        return self.free() + torch.cuda.memory_reserved(self._index) - torch.cuda.memory_allocated(self._index)

    def trim(self) -> None:
        torch.cuda.empty_cache()

    def _identity(self, address: int) -> int:
        """Return a number that no other allocation of this process has ever had."""
        identity = ctypes.c_uint64()
        self._call("cuPointerGetAttribute", ctypes.byref(identity), ctypes.c_int(_BUFFER_ID), ctypes.c_uint64(address))
        return identity.value

    def _range(self, address: int) -> tuple[int, int]:
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
        return base.value, size.value

    def _tensor(self, address: int, size: int, release: Callable[[], None]) -> torch.Tensor:
        flat = torch.as_tensor(_Bytes(address, size), device=f"cuda:{self._index}")
        # tied to the storage, because views may outlive the tensor from which they were taken
        weakref.finalize(flat.untyped_storage(), release).atexit = False
        return flat

    def _call(self, function: str, *arguments: object) -> None:
        try:
            with self._driver.context(self._index):
                self._driver.call(function, *arguments)
        except LaunchError as error:
            raise PlatformError(str(error)) from None
