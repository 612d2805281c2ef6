"""The base class of platform adapters, with defaults that work for any device that torch supports.

A platform whose programs are PyTorch modules on such a device needs no adapter. Any other platform has an `adapter.py`
beside its manifest, with a class `Adapter` that derives from this one and overrides the methods in which it differs.
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
from kforge.platforms import host, host_facts
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
HOST_VARIATION, DEVICE_VARIATION = 0.04, 0.01
"""Log-ratio bounds on process-to-process variation: of work on the host, and of work on a device."""
MOST_CACHES = 64 << 20
"""Most bytes that are written to flush a whole last-level cache. Also the bytes that are assumed for a cache whose size
is unknown; most devices have less."""
LAUNCH_SECONDS = 5e-5
"""Seconds that Python and the driver take to launch a kernel or two. In a call this short, the host takes most of the
time."""


class Adapter:
    """How kforge checks, prepares and times one platform.

    `probe`, `versions`, `features`, `environment`, `device_nodes`, `emulated` and `build_ahead` run in the
    orchestrator, which never imports torch. The other methods run in the referee and the workers. `kernel_device` runs
    in all of them.
    """

    line_flags: tuple[str, ...] = ()
    """Compiler flags with which builds of `kforge.inline` keep line numbers, so that a profile can name lines of
    kernels. Empty if kernels do not run on the host's processor."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    @cached_property
    def cache_bytes(self) -> int:
        """Bytes of the last-level cache, or `MOST_CACHES` if they are unknown. Data that fits into it may be read
        faster than from memory."""
        return self._caches[-1] if self._caches else MOST_CACHES

    @cached_property
    def flush_bytes(self) -> int:
        """Bytes that `flush` writes: twice the last-level cache if that is at most `MOST_CACHES`, which takes a few
        milliseconds.

        Servers and virtual machines report hundreds of megabytes of cache, which they share with other users. On those,
        `flush` writes three times the cores' own caches. If the caches are unknown, it writes `MOST_CACHES`.
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
        """Return why this platform cannot be used on this machine, in one line. None if it can be used."""
        for tool in self.manifest.toolchain:
            if not any(shutil.which(command) for command in tool.commands):
                return f"no {' or '.join(tool.commands)} on PATH ({tool.purpose})" + _remedy(tool.install)
        for package in self.manifest.requires:
            if importlib.util.find_spec(package) is None:
                return f"the Python package {package} is not installed" + _remedy(self.manifest.install)
        return None

    def versions(self) -> dict[str, str]:
        """Return the versions of those toolchain commands and required packages that are installed."""
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
        """Return the names of the device's optional units and instructions."""
        return frozenset()

    def environment(self) -> dict[str, str]:
        """Return the environment variables that a worker of this platform needs in addition to the evaluator's own."""
        return {}

    def device_nodes(self) -> tuple[str, ...]:
        """Return glob patterns of the nodes in /dev that a worker may open, besides /dev/null and the like.

        A pattern outside /dev makes files readable, for a driver that reads its configuration there. macOS has no such
        nodes: the names are IOKit user client classes and Mach services (with dots).
        """
        return ()

    def kernel_device(self) -> KernelDevice | None:
        """Return the device that runs the kernels if it differs from torch's device for the tensors. Otherwise None.

        The method is called several times, also in processes that fork later. So find the device in a subprocess, and
        cache the answer.
        """
        return None

    def sanitizers(self) -> tuple[Sanitizer, ...] | NoSanitizer:
        """Return the sanitizers for this platform's programs, or the reason why there are none.

        Each runs separately, in this order. The first finding ends the check.
        """
        return NoSanitizer(f"the platform '{self.manifest.name}' has no sanitizer")

    def profilers(self) -> tuple[Profiler | NoProfiler, ...]:
        """Return profilers that report more than torch's own, the best one first. For a missing profiler, return the
        reason."""
        return ()

    def kernel_owners(self, program: str) -> Callable[[str], KernelOwner] | None:  # noqa: ARG002 - for overrides
        """Return a function that says whether the program or a library wrote a kernel that `watch` recorded. None if
        that cannot be known."""
        return None

    def emulated(self) -> str | None:
        """Return in which emulator or interpreter programs run on this machine, and why. None if they run on their own
        device.

        Emulated programs are verified but never timed. Their verdict has the label `emulated`.
        """
        return None

    def build_ahead(self, kernel: Path) -> tuple[str, ...]:  # noqa: ARG002 - for overrides
        """Build a program that cannot run on this machine, and return the targets it was built for. Empty if the
        platform cannot do that.

        Raises PlatformError if the program does not build.
        """
        return ()

    # --- with torch ---------------------------------------------------------------------------------------

    def device(self) -> str:
        """Return torch's device for inputs, parameters and outputs."""
        return self.manifest.device

    def process_variation(self, seconds: float) -> float:
        """Return the log-ratio bound on process-to-process variation. One process of a program may stay faster than
        another, because of where its memory lies.

        The bound was measured by running the same program against itself in many pairs of processes
        (docs/decisions/011). On a device it depends on `seconds`, the time of a call, because short calls consist
        mostly of launches on the host.
        """
        if self.device().partition(":")[0] == "cpu":
            return HOST_VARIATION
        return DEVICE_VARIATION + HOST_VARIATION * min(1.0, LAUNCH_SECONDS / seconds)

    def prepare(self) -> None:
        """Initialize the device in this process. Raises PlatformError if torch cannot use it."""
        import torch

        try:
            torch.empty(1, device=self.device())
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise PlatformError(f"torch cannot use the device '{self.device()}': {reason}") from error

    def build_environment(self, folder: Path) -> dict[str, str]:  # noqa: ARG002
        """Return environment variables that direct a program's builds into this folder. They are for builds that
        `kforge.inline` does not make."""
        return {}

    def use_precision(self, precision: str) -> None:
        """Set the declared precision for torch's own kernels in this process. They must not compute less exactly."""

    def device_memory(self) -> DeviceMemory | None:
        """Return device memory that the referee and a worker can share. None if tensors are in host memory, or if
        memory cannot be shared."""
        return None

    def conditions(self) -> dict[str, str]:
        """Return the present conditions on which the device's speed depends (clocks, power, temperature), as texts by
        name.

        They go into receipts. Empty if the device does not report them. The call must not take longer than about a
        millisecond.
        """
        return {}

    def limits(self) -> tuple[Limit, ...]:
        """Return the present limits of the device's speed. The method is called between timed blocks, so it must be
        quick."""
        return ()

    def stopwatch(self) -> Callable[[], int]:
        """Start measuring. The returned function waits for the device and returns the nanoseconds since the start."""
        start = time.perf_counter_ns()

        def read() -> int:
            self.synchronize()
            return time.perf_counter_ns() - start

        return read

    def synchronize(self) -> None:
        """Wait until all work that was launched so far is done."""
        import torch

        torch.get_device_module(self.device()).synchronize()

    def flush(self) -> None:
        """Evict earlier data from the device's caches. On a host this also flushes them for other processes."""
        if self.device().partition(":")[0] == "cpu":
            self._host_flush.run()
            return
        # The buffer is read and written, because a plain fill may bypass the caches.
        self._flush_buffer.add_(1)
        self.synchronize()

    @cached_property
    def _host_flush(self) -> host.HostFlush:
        return host.HostFlush(self.flush_bytes)

    @cached_property
    def _flush_buffer(self) -> torch.Tensor:
        import torch

        return torch.zeros(self.flush_bytes, dtype=torch.uint8, device=self.device())

    def recording(self) -> AbstractContextManager[object]:
        """Return a context manager around the calls that an external profiler must record."""
        return nullcontext()

    def watch(self, call: Callable[[], object]) -> WatchedKernels:
        """Run a call that waits for the device at its end, and return the kernels that the device ran meanwhile.

        torch's profiler sees only kernels on torch's devices. For a `kernel_device`, override this method with the
        driver's own events; otherwise no kernel is seen.
        """
        from kforge.platforms import kernel_watch

        return kernel_watch.watch(call, self.device())

    def plant(self, error: str) -> None:
        """Cause an error on purpose, in a worker under the sanitizer that names the error (`Sanitizer.planted`). It
        proves that the sanitizer works."""
        raise PlatformError(f"the platform '{self.manifest.name}' has no planted error named {error}")

    def measure_peaks(self) -> Peaks:
        """Measure the memory bandwidth and the float32 arithmetic rate that the device reaches. This takes about two
        seconds."""
        from kforge.platforms import peaks

        return Peaks(
            device=self.describe_device(),
            bytes_per_second=peaks.bytes_per_second(self.device(), self.synchronize),
            flops_per_second=peaks.flops_per_second(self.device(), self.synchronize),
            caches=tuple(host.cache_levels()) if self.device().partition(":")[0] == "cpu" else (),
        )

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return what the device reports about itself that an author of programs needs, as pairs of name and text.

        Nothing is measured here. The default describes the host's processor if kernels run on it; for another device,
        override this method. Raises KforgeError or InlineError if the device or its compiler cannot be asked.
        """
        elsewhere = self.kernel_device()
        if self.device().partition(":")[0] == "cpu" and (elsewhere is None or elsewhere.in_worker):
            return tuple(host_facts.facts())
        return (("Device", self.describe_device()),)

    def describe_device(self) -> str:
        """Return the device's own name. Measured numbers are stored with this name, because they are valid for this
        device only."""
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
        # the package is installed under another name than it is imported; the search reads every installed package
        distributions = importlib.metadata.packages_distributions().get(package, ())
        return importlib.metadata.version(distributions[0]) if distributions else None


def _tool_version(command: str) -> str:
    """Return the version in the first line of `command --version`, or the whole line if it has no version number."""
    try:
        answer = subprocess.run(
            [command, "--version"], capture_output=True, text=True, errors="replace", check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return "does not answer --version"
    line = (answer.stdout or answer.stderr).strip().partition("\n")[0]
    numbers = _VERSION.findall(line)
    return numbers[-1] if numbers else line
