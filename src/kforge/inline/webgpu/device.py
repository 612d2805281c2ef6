"""The WebGPU device of this process, opened once, and its buffers, which are reused.

`main` writes the device's description to a file. Programs that must not load the driver themselves run it in a separate
process.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.inline.errors import ToolchainError
from kforge.inline.geometry import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTALL_PACKAGE = "pip install wgpu"
INSTALL_DRIVER = "apt install mesa-vulkan-drivers"
"""Command that installs lavapipe, the driver for machines without a GPU. GPUs have drivers of their own."""
_BACKENDS = ("Vulkan", "Metal", "DX12")
"""Graphics interfaces that may be used. OpenGL is left out: it lacks most features that kernels need, and looks for a
display."""
_FEATURES = (
    "timestamp-query", "shader-f16", "subgroup", "subgroup-barrier", "shader-int64", "shader-f64",
    "shader-float32-atomic",
)  # fmt: skip
"""Features that kernels may use if the device has them. All but the first two are extensions."""
_KEPT_BYTES = 256 << 20
"""Most bytes of buffers that are kept for later launches."""


@dataclass(frozen=True)
class Description:
    """Properties of a device that are known before it is opened."""

    name: str
    driver: str
    """Name and version of the driver."""
    is_processor: bool
    """Whether kernels run on the host's processors."""


class Device:
    """An open device, its limits, and buffers for reuse."""

    def __init__(self, wgpu: Any, adapter: Any) -> None:
        features = adapter.features
        self.wgpu = wgpu
        self.description = _described(adapter)
        self.name = self.description.name
        wanted = [feature for feature in _FEATURES if feature in features]
        self.features = frozenset(wanted)
        self.native = adapter.request_device_sync(required_features=wanted, required_limits=dict(adapter.limits))
        limits = self.native.limits
        self.most_bytes: int = min(limits["max-storage-buffer-binding-size"], limits["max-buffer-size"])
        self.group_bytes: int = limits["max-compute-workgroup-storage-size"]
        most_groups = limits["max-compute-workgroups-per-dimension"]
        self.limits = Limits(
            group=tuple(limits[f"max-compute-workgroup-size-{axis}"] for axis in "xyz"),
            group_threads=limits["max-compute-invocations-per-workgroup"],
            groups=(most_groups, most_groups, most_groups),
        )
        self.lock = threading.RLock()
        self._free: dict[tuple[int, int], list[Any]] = {}
        self._kept = 0

    @contextmanager
    def buffer(self, size: int, usage: int) -> Iterator[Any]:
        """Yield a buffer of at least this many bytes, which is valid inside the `with` block. Its content is
        undefined."""
        room = _room(size)
        free = self._free.setdefault((room, usage), [])
        if free:
            found = free.pop()
            self._kept -= room
        else:
            found = self.native.create_buffer(size=room, usage=usage)
        try:
            yield found
        finally:
            if self._kept + room <= _KEPT_BYTES:
                free.append(found)
                self._kept += room
            else:
                found.destroy()

    @property
    def has_timestamps(self) -> bool:
        return "timestamp-query" in self.features


def open_device() -> Device:
    """Return the device of this process, opened at the first call. Raises ToolchainError if no device can be
    opened."""
    # a forked process must open the device again: fork does not copy the driver's threads
    return _opened(os.getpid())


@cache
def _opened(process: int) -> Device:  # noqa: ARG001 - one device a process
    wgpu, adapter = _chosen()
    with _quiet():
        try:
            return Device(wgpu, adapter)
        except RuntimeError as error:
            raise ToolchainError(f"the device for WebGPU cannot be opened: {error}") from error


def _chosen() -> tuple[Any, Any]:
    """Return the package `wgpu` and its adapter for the fastest device. Raises ToolchainError if the package or
    a driver is missing."""
    try:
        import wgpu
        from wgpu.backends.wgpu_native import extras
    except ImportError as error:
        raise ToolchainError(
            f"the Python package wgpu cannot be imported ({error}); install it: {INSTALL_PACKAGE}"
        ) from None
    except OSError as error:  # the wheel's library does not load
        raise ToolchainError(f"the Python package wgpu does not work here: {error}") from error
    with _quiet():
        with suppress(RuntimeError):  # the program has opened a device before
            extras.set_instance_extras(backends=_BACKENDS, flags=("Default", "AutomaticTimestampNormalization"))
        try:
            adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        except RuntimeError:
            adapter = None
    if adapter is None:
        raise ToolchainError(
            f"no device for WebGPU: no Vulkan, Metal or Direct3D 12 driver finds one; install one: {INSTALL_DRIVER}"
        )
    return wgpu, adapter


def _described(adapter: Any) -> Description:
    info = adapter.info
    driver = f"{info['backend_type']}, {info['description'] or info['vendor']}"
    return Description(name=info["device"], driver=driver, is_processor=info["adapter_type"] == "CPU")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep `wgpu` from printing a long warning about missing graphics features."""
    logger = logging.getLogger("wgpu")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _room(size: int) -> int:
    """Return the size of the buffer to allocate for `size` bytes. There are only few different sizes, so that buffers
    can be reused."""
    least = 256
    while least < size:
        least *= 2
    # above a megabyte, a power of two would waste too much
    return least if least <= 1 << 20 else -(-size // (1 << 18)) * (1 << 18)


def main(file: str) -> None:
    """Write the device's description, or the reason why there is no device, to this file as JSON."""
    try:
        told = asdict(_described(_chosen()[1]))
    except ToolchainError as error:
        told = {"reason": str(error)}
    Path(file).write_text(json.dumps(told), encoding="utf-8")
