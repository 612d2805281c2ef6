"""The behaviour of a platform, with defaults that work for any device torch knows.

A platform whose programs are PyTorch modules on one of these devices needs no adapter. One that differs puts an
`adapter.py` beside its manifest, with a class `Adapter` derived from this one that overrides what differs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import time
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

from kforge.errors import PlatformError
from kforge.platforms import host
from kforge.platforms.contracts import NoSanitizer, Sanitizer
from kforge.records import Peaks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from kforge.platforms.contracts import DeviceMemory, KernelDevice, Limit, NoProfiler, Profiler
    from kforge.platforms.kernels import KernelOwner, WatchedKernels
    from kforge.platforms.manifest import Manifest

_VERSION = re.compile(r"\d+(?:\.\d+)+")
HOST_LUCK, DEVICE_LUCK = 0.04, 0.01
MOST_CACHES = 64 << 20
"""Most bytes of a last-level cache that are flushed whole: more than most devices have."""
LAUNCH_SECONDS = 5e-5
"""Seconds that Python and the driver take to launch a kernel or two. In a call this short, the host takes most of the
time."""


class Adapter:
    """How one platform is probed, prepared, timed and measured.

    `probe`, `versions`, `features`, `environment`, `device_nodes`, `emulated` and `build_ahead` run in the
    orchestrator, which never imports torch; the others run in the referee and the workers. `kernel_device` runs in all
    of them.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    @cached_property
    def cache_bytes(self) -> int:
        """Bytes of the last-level cache: data that fits into it may be read faster than from memory."""
        return self._caches[-1] if self._caches else MOST_CACHES

    @cached_property
    def flush_bytes(self) -> int:
        """Bytes that `flush` writes: twice the last-level cache, where that takes only a few milliseconds.

        Servers and virtual machines report hundreds of megabytes, shared with other users. There only the cores' own
        caches are flushed.
        """
        if not self._caches:
            return MOST_CACHES
        *_, own, last = (self._caches[0], *self._caches)
        return 2 * last if 2 * last <= MOST_CACHES else 3 * own * host.threads()

    @cached_property
    def _caches(self) -> list[int]:
        return host.caches() if self.manifest.device == "cpu" else []

    # --- without torch ------------------------------------------------------------------------------------

    def probe(self) -> str | None:
        """Return why this platform cannot be used here, in one line; None when it can."""
        for tool in self.manifest.toolchain:
            if not any(shutil.which(command) for command in tool.commands):
                return f"no {' or '.join(tool.commands)} on PATH ({tool.purpose})" + _remedy(tool.install)
        for package in self.manifest.requires:
            if importlib.util.find_spec(package) is None:
                return f"the Python package {package} is not installed" + _remedy(self.manifest.install)
        return None

    def versions(self) -> dict[str, str]:
        """Return the versions of the toolchain and of the required packages, as far as they are installed."""
        versions = {}
        for tool in self.manifest.toolchain:
            command = next(filter(shutil.which, tool.commands), None)
            if command is not None:
                versions[command] = _tool_version(command)
        for package in self.manifest.requires:
            if (version := _package_version(package)) is not None:
                versions[package] = version
        return versions

    def features(self) -> frozenset[str]:
        """Return the device's optional units and instructions, by their usual names."""
        return frozenset()

    def environment(self) -> dict[str, str]:
        """Return variables that a worker of this platform needs besides the evaluator's own."""
        return {}

    def device_nodes(self) -> tuple[str, ...]:
        """Return what a worker may open besides /dev/null and similar nodes: glob patterns of nodes in /dev.

        A pattern outside /dev is shown read-only, for a driver that reads its configuration there. macOS has no nodes:
        there they are IOKit user client classes and the dotted names of Mach services.
        """
        return ()

    def kernel_device(self) -> KernelDevice | None:
        """Return the device that runs the kernels, where it is not torch's device of the tensors; None where it is.

        It is asked several times, also in processes that are forked later: find it in a subprocess and remember it.
        """
        return None

    def sanitizers(self) -> tuple[Sanitizer, ...] | NoSanitizer:
        """Return the sanitizers for this platform's programs, each for a separate run, or why it has no sanitizer.

        They run in this order, and the first finding ends the check.
        """
        return NoSanitizer(f"the platform '{self.manifest.name}' has no sanitizer")

    def profilers(self) -> tuple[Profiler | NoProfiler, ...]:
        """Return profilers that say more than torch's own, the best first; a missing one says why it is missing."""
        return ()

    def kernel_owners(self, program: str) -> Callable[[str], KernelOwner] | None:  # noqa: ARG002 - for devices
        """Return a function that says who wrote a kernel that `watch` saw; None where that is not known."""
        return None

    def emulated(self) -> str | None:
        """Return in which emulator or interpreter programs run here, and why; None where they run on their own device.

        What is emulated is verified and never timed, and its result has the label `emulated`.
        """
        return None

    def build_ahead(self, kernel: Path) -> tuple[str, ...]:  # noqa: ARG002 - for platforms that can
        """Build a program that cannot run here. Returns the targets it was built for; none where the platform cannot do
        that.

        Raises PlatformError when the program does not build.
        """
        return ()

    # --- with torch ---------------------------------------------------------------------------------------

    def device(self) -> str:
        """Return torch's device for inputs, parameters and outputs."""
        return self.manifest.device

    def process_luck(self, seconds: float) -> float:
        """Return the log-ratio bound on process-to-process variation: one process of a program may stay faster than
        another, because of where its memory lies.

        It was measured by the same program against itself in many pairs of processes (docs/decisions/011). On a device
        it depends on the host's share of a call of this many seconds: short calls are mostly launches.
        """
        if self.device().partition(":")[0] == "cpu":
            return HOST_LUCK
        return DEVICE_LUCK + HOST_LUCK * min(1.0, LAUNCH_SECONDS / seconds)

    def prepare(self) -> None:
        """Make the device ready in this process. Raises PlatformError when torch cannot use it."""
        import torch

        try:
            torch.empty(1, device=self.device())
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise PlatformError(f"torch cannot use the device '{self.device()}': {reason}") from error

    def build_environment(self, folder: Path) -> dict[str, str]:  # noqa: ARG002
        """Return variables that keep a program's own builds in this folder, for builds that `kforge.inline` does not
        make."""
        return {}

    def use_precision(self, precision: str) -> None:
        """Let torch's own kernels in this process use the declared precision, and nothing less exact."""

    def device_memory(self) -> DeviceMemory | None:
        """Return device memory that the referee and a worker can share; None where it is host memory, or cannot be
        shared."""
        return None

    def conditions(self) -> dict[str, str]:
        """Return what the device's speed depends on now, by name and in words: clocks, power, temperature.

        For receipts; empty where the device does not report it. It must not take longer than about a millisecond.
        """
        return {}

    def limits(self) -> tuple[Limit, ...]:
        """Return what limits the device's speed now. It is called between timed blocks, so it must be quick."""
        return ()

    def stopwatch(self) -> Callable[[], int]:
        """Begin to measure. The returned function waits for the device and returns nanoseconds."""
        start = time.perf_counter_ns()

        def read() -> int:
            self.synchronize()
            return time.perf_counter_ns() - start

        return read

    def synchronize(self) -> None:
        """Wait until everything launched so far is done."""
        import torch

        torch.get_device_module(self.device()).synchronize()

    def flush(self) -> None:
        """Evict earlier data from the device's caches."""
        # Read and written, because a plain fill may bypass the caches.
        self._flush_buffer.add_(1)
        self.synchronize()

    @cached_property
    def _flush_buffer(self) -> torch.Tensor:
        import torch

        return torch.zeros(self.flush_bytes, dtype=torch.uint8, device=self.device())

    def recording(self) -> AbstractContextManager[object]:
        """Surround the calls that an external profiler is to see."""
        return nullcontext()

    def watch(self, call: Callable[[], object]) -> WatchedKernels:
        """Run a call that waits for the device at its end, and return the kernels that the device ran meanwhile.

        torch's profiler sees those of torch's devices only. For a `kernel_device`, override this with the driver's own
        events; without them nothing is seen.
        """
        from kforge.platforms import kernel_watch

        return kernel_watch.watch(call, self.device())

    def plant(self, error: str) -> None:
        """Make an error on purpose, in a worker under the sanitizer that names it (`Sanitizer.planted`)."""
        raise PlatformError(f"the platform '{self.manifest.name}' has no error named {error}")

    def measure_peaks(self) -> Peaks:
        """Measure what the device really reaches, in memory traffic and in float32 arithmetic; takes about two
        seconds."""
        from kforge.platforms import peaks

        return Peaks(
            device=self.describe_device(),
            bytes_per_second=peaks.bytes_per_second(self.device(), self.synchronize),
            flops_per_second=peaks.flops_per_second(self.device(), self.synchronize),
        )

    def describe_device(self) -> str:
        """Return the device's own name: a number measured here is true for this device only."""
        if (elsewhere := self.kernel_device()) is not None:
            return elsewhere.name
        if self.device().partition(":")[0] == "cpu":
            return host.describe()
        import torch

        module = torch.get_device_module(self.device())
        name = getattr(module, "get_device_name", None)
        return str(name(self.device())) if name is not None else f"{self.device()} on {host.describe()}"


def _remedy(command: str | None) -> str:
    return f"; install it: {command}" if command is not None else ""


def _package_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        # the package is imported under another name than it is installed; a lookup reads every installed package
        distributions = importlib.metadata.packages_distributions().get(package, ())
        return importlib.metadata.version(distributions[0]) if distributions else None


def _tool_version(command: str) -> str:
    """Return the version in the first line of `command --version`, or that line where it holds no number."""
    try:
        answer = subprocess.run(
            [command, "--version"], capture_output=True, text=True, errors="replace", check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return "does not answer --version"
    line = (answer.stdout or answer.stderr).strip().partition("\n")[0]
    numbers = _VERSION.findall(line)
    return numbers[-1] if numbers else line
