"""The OpenCL device of this process: the best device of all installed drivers, opened once.

Run as a program, this module writes the device's description to a file as JSON. That is done in a separate process
because loading a driver starts threads and may crash.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kforge.inline.errors import ToolchainError
from kforge.inline.geometry import Limits

INSTALL_PACKAGE = "pip install pyopencl"
INSTALL_DRIVER = "apt install pocl-opencl-icd"
"""Command that installs the driver for the host's processors; GPUs have drivers of their own. Without root on x86-64:
pip install intel-opencl-rt."""
_EMULATOR = "oclgrind"
"""Name of a simulator that checks kernels and is thousands of times slower. It is used only if there is no other
device."""
_MOST_THREADS = 2**31 - 1


@dataclass(frozen=True)
class Description:
    """Properties of a device that are known before a kernel runs."""

    name: str
    driver: str
    """Name and version of the driver."""
    is_processor: bool
    """Whether kernels run on the host's processors."""
    is_emulated: bool
    doubles: bool
    halves: bool


class Device:
    """An open device with its command queue."""

    def __init__(self, opencl: Any, native: Any) -> None:
        self.opencl = opencl
        self.native = native
        self.context = opencl.Context([native])
        # recording the times of events adds almost nothing to a launch
        self.queue = opencl.CommandQueue(self.context, properties=opencl.command_queue_properties.PROFILING_ENABLE)
        self.description = _described(opencl, native)
        self.in_host_memory: bool = bool(native.host_unified_memory)
        """Whether a buffer made from host memory uses that memory itself instead of a copy."""
        self.shared_bytes: int = native.local_mem_size
        sizes = [*native.max_work_item_sizes, 1, 1][:3]
        self.limits = Limits(
            group=(sizes[0], sizes[1], sizes[2]),
            group_threads=native.max_work_group_size,
            groups=(_MOST_THREADS, _MOST_THREADS, _MOST_THREADS),
        )
        self.lock = threading.RLock()
        """Held while a kernel is launched, because setting its arguments and launching it are separate calls of the
        driver."""

    @property
    def identity(self) -> str:
        """A text that identifies the device in the cache of compiled programs: names and versions of platform, device
        and driver."""
        native = self.native
        platform = native.platform
        return "\n".join((platform.name, platform.version, native.name, native.version, native.driver_version))


def open_device() -> Device:
    """Return the device of this process. Raises ToolchainError if no driver offers a device."""
    # a forked process must open the device again: fork does not copy the driver's threads
    return _opened(os.getpid())


@cache
def _opened(process: int) -> Device:  # noqa: ARG001 - one device a process
    opencl = _package()
    try:
        return Device(opencl, _chosen(opencl))
    except opencl.Error as error:
        raise ToolchainError(f"the OpenCL driver does not work here: {one_line(error)}") from None


def _package() -> Any:
    try:
        import pyopencl
    except ImportError as error:
        raise ToolchainError(
            f"the Python package pyopencl cannot be imported ({error}); install it: {INSTALL_PACKAGE}"
        ) from None
    return pyopencl


def _chosen(opencl: Any) -> Any:
    """Return the best device: a GPU, otherwise another accelerator, otherwise a processor. Raises ToolchainError if
    there is none."""
    kinds = opencl.device_type
    ranks = (kinds.GPU, kinds.ACCELERATOR, kinds.CPU)
    found: list[tuple[bool, int, int, Any]] = []
    for platform in _platforms(opencl):
        for device in platform.get_devices():
            rank = next((rank for rank, kind in enumerate(ranks) if device.type & kind), len(ranks))
            found.append((_is_emulated(device), rank, len(found), device))
    if not found:
        raise ToolchainError(f"no OpenCL driver finds a device here; install one: {INSTALL_DRIVER}")
    return min(found)[-1]


def _platforms(opencl: Any) -> list[Any]:
    try:
        return list(opencl.get_platforms())
    except opencl.Error:  # the loader raises this if no driver is installed
        return []


def _is_emulated(device: Any) -> bool:
    return _EMULATOR in device.platform.name.lower()


def _described(opencl: Any, native: Any) -> Description:
    platform, extensions = native.platform, native.extensions.split()
    processor = bool(native.type & opencl.device_type.CPU)
    return Description(
        name=" ".join(native.name.split()),
        driver=" ".join(f"{platform.name} {native.driver_version}".split()),
        is_processor=processor,
        is_emulated=_is_emulated(native),
        doubles="cl_khr_fp64" in extensions,
        halves="cl_khr_fp16" in extensions,
    )


def one_line(error: Exception) -> str:
    """Return an error's message on one line."""
    return " ".join(str(error).split())


def main(file: str) -> None:
    """Write the device's description, or the reason why there is no device, to this file as JSON."""
    try:
        opencl = _package()
        told = asdict(_described(opencl, _chosen(opencl)))
    except ToolchainError as error:
        told = {"reason": str(error)}
    Path(file).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
