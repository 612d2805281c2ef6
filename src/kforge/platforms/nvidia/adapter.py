"""The base adapter of the platforms on NVIDIA GPUs: device, driver files, caches and peak rates."""

from __future__ import annotations

import importlib.util
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.errors import PlatformError
from kforge.inline import ToolchainError
from kforge.inline.cuda import driver
from kforge.platforms.adapter import Adapter
from kforge.platforms.nvidia import compute_sanitizer, nsight
from kforge.platforms.nvidia import conditions as nvidia_conditions
from kforge.platforms.nvidia import kernels as nvidia_kernels
from kforge.records import Peaks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from kforge.platforms.contracts import DeviceMemory, Limit, NoProfiler, NoSanitizer, Profiler, Sanitizer
    from kforge.platforms.kernels import KernelOwner

PEAK_BYTES = 1 << 30
"""Bytes that are copied to measure the bandwidth: more than twelve times the largest L2 cache."""
TRANSFERS = 2
"""Transfers per wire of the memory bus in one cycle of the clock that the driver reports."""
_FLUSHED = 3
"""Number of L2 cache sizes that a flush writes. More than one is needed, because lines are replaced by a hash and not
in order."""


def missing_device() -> str | None:
    """Return why no GPU can be used on this machine, in one line. None if one can be used. Does not import torch."""
    try:
        driver.load()
    except ToolchainError as error:
        return str(error)
    return _torch_without_devices()


def _torch_without_devices() -> str | None:
    """Return a reason if this torch was built without CUDA, otherwise None. It looks at torch's files, because the
    orchestrator does not import torch."""
    spec = importlib.util.find_spec("torch")
    places = spec.submodule_search_locations if spec is not None else None
    if places and not any((Path(place) / "lib" / "libtorch_cuda.so").exists() for place in places):
        return "there is a GPU, but this torch was built without CUDA"
    return None


class NvidiaAdapter(Adapter):
    """The base adapter for platforms whose device is torch's `cuda`."""

    def versions(self) -> dict[str, str]:
        versions = super().versions()
        if missing_device() is None:
            versions["driver (CUDA)"] = ".".join(map(str, driver.load().version()))
            if (version := nvidia_conditions.driver_version()) is not None:
                versions["driver"] = version
        return versions

    def device_nodes(self) -> tuple[str, ...]:
        return ("/dev/nvidia*", "/dev/dxg", *self._driver_folder())

    def sanitizers(self) -> tuple[Sanitizer, ...] | NoSanitizer:
        return compute_sanitizer.find(missing_device())

    def plant(self, error: str) -> None:
        compute_sanitizer.plant(error, self.device())

    def profilers(self) -> tuple[Profiler | NoProfiler, ...]:
        return nsight.find()

    def kernel_owners(self, program: str) -> Callable[[str], KernelOwner] | None:
        return nvidia_kernels.owners(program)

    def recording(self) -> AbstractContextManager[object]:
        import torch

        return torch.cuda.profiler.profile()

    def prepare(self) -> None:
        super().prepare()
        self.flush_bytes = _FLUSHED * driver.load().attribute(self._index(), driver.L2_BYTES)

    def use_precision(self, precision: str) -> None:
        import torch

        torch.set_float32_matmul_precision("highest" if precision == "strict" else "high")
        torch.backends.cudnn.allow_tf32 = precision != "strict"

    def device_memory(self) -> DeviceMemory | None:
        return self._shared_memory

    @cached_property
    def _shared_memory(self) -> DeviceMemory | None:
        from kforge.platforms.nvidia.memory import NvidiaMemory

        memory = NvidiaMemory(driver.load(), self._index())
        try:
            tried = memory.allocate(1)
            memory.export(tried.data_ptr())
        except PlatformError:  # for example in WSL, whose driver cannot share memory
            return None
        return memory

    def conditions(self) -> dict[str, str]:
        return {} if self._gauge is None else self._gauge.conditions()

    def limits(self) -> tuple[Limit, ...]:
        return () if self._gauge is None else self._gauge.limits()

    @cached_property
    def _gauge(self) -> nvidia_conditions.Gauge | None:
        return nvidia_conditions.Gauge.open(driver.load().bus_address(self._index()))

    def stopwatch(self) -> Callable[[], int]:
        """Start measuring with events of the device, which do not count the host's time. The returned function waits
        for the device and returns nanoseconds."""
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()

        def read() -> int:
            end.record()
            self.synchronize()
            # a program can disable waiting in its own process; this clock then returns 0, and other clocks decide
            return int(start.elapsed_time(end) * 1e6) if end.query() else 0  # type: ignore[no-untyped-call]

        return read

    def flush(self) -> None:
        super().flush()
        # A program may have made L2 lines persistent, so that they survive any number of writes.
        driver.load().reset_persisting_cache(self._index())

    def describe_device(self) -> str:
        native, index = driver.load(), self._index()
        multiprocessors = native.attribute(index, driver.MULTIPROCESSORS)
        return f"{native.name(index)} ({native.architecture(index)}, {multiprocessors} multiprocessors)"

    def facts(self) -> tuple[tuple[str, str], ...]:
        native, index = driver.load(), self._index()

        def ask(which: int) -> int:
            return native.attribute(index, which)

        kib = 1 << 10
        shared, each = ask(driver.SHARED_PER_MULTIPROCESSOR) // kib, ask(driver.SHARED_OPT_IN) // kib
        return (
            ("Device", self.describe_device()),
            ("Multiprocessors", f"{ask(driver.MULTIPROCESSORS)}, warps of {ask(driver.WARP_THREADS)} threads"),
            (
                "Each has",
                f"room for {ask(driver.THREADS_PER_MULTIPROCESSOR)} threads, "
                f"{ask(driver.REGISTERS_PER_MULTIPROCESSOR)} registers of 4 bytes, {shared} KiB of shared memory",
            ),
            ("A block", f"at most {ask(driver.MAX_THREADS_PER_GROUP)} threads and {each} KiB of shared memory"),
            ("L2 cache", f"{ask(driver.L2_BYTES) / 2**20:g} MiB"),
            ("Highest clock", f"{ask(driver.CLOCK_KILOHERTZ) / 1e6:.3g} GHz"),
        )

    def measure_peaks(self) -> Peaks:
        """Measure the memory bandwidth, and matrix products in every precision that a program may declare. This takes
        about three seconds."""
        import torch

        from kforge.platforms import peaks

        device, wait = self.device(), self.synchronize
        before = torch.get_float32_matmul_precision()
        try:
            torch.set_float32_matmul_precision("highest")
            strict = peaks.flops_per_second(device, wait)
            torch.set_float32_matmul_precision("high")
            tf32 = peaks.flops_per_second(device, wait)
        finally:
            torch.set_float32_matmul_precision(before)
        half, bfloat = (peaks.flops_per_second(device, wait, dtype) for dtype in (torch.float16, torch.bfloat16))
        strict, half = max(strict, half / peaks.HALVES), max(half, bfloat)
        return Peaks(
            device=self.describe_device(),
            bytes_per_second=peaks.bytes_per_second(device, wait, PEAK_BYTES),
            flops_per_second=strict,
            lowered={"tf32": max(strict, tf32), "half": max(strict, tf32, half)},
            wired_bytes_per_second=self._wired_bytes_per_second(),
        )

    def _wired_bytes_per_second(self) -> float | None:
        """Return the rated bandwidth, from the clock and the width of the memory bus. None if a (virtual) device does
        not report them.

        A kernel that only reads can come nearer to this rate than the copies and sums of torch that are measured.
        """
        native, index = driver.load(), self._index()
        hertz, bits = (
            1e3 * native.attribute(index, driver.MEMORY_KILOHERTZ),
            native.attribute(index, driver.MEMORY_BITS),
        )
        return TRANSFERS * hertz * bits / 8 or None

    def _index(self) -> int:
        import torch

        return torch.cuda.current_device()

    def _driver_folder(self) -> Iterator[str]:
        """Yield the folder of the driver's libraries, which workers must be able to read. On some machines it is
        outside the usual folders."""
        if missing_device() is None and (file := driver.load().file) is not None:
            yield str(file.parent)
