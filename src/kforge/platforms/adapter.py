"""The behaviour of a platform, with defaults that work for any device torch knows.

A platform whose programs are PyTorch modules on such a device needs no adapter of its own. One that differs puts an
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

    from kforge.platforms.contracts import DeviceMemory, Limit, NoProfiler, Profiler
    from kforge.platforms.kernels import KernelOwner, Watched
    from kforge.platforms.manifest import Manifest

_VERSION = re.compile(r"\d+(?:\.\d+)+")
HOST_LUCK, DEVICE_LUCK = 0.04, 0.01
MOST_CACHES = 64 << 20
"""More than the last-level cache of most devices."""
LAUNCH_SECONDS = 5e-5
"""What Python and the driver take to launch a kernel or two; where a call is as short, it is the host's."""


class Adapter:
    """How one platform is probed, prepared, timed and measured.

    `probe`, `versions`, `features`, `environment`, `device_nodes`, `caveat` and `build_ahead` run in the orchestrator,
    which never imports torch; the others run in the referee and the workers.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    @cached_property
    def cache_bytes(self) -> int:
        """The last-level cache: what fits into it may come faster than from memory."""
        return self._caches[-1] if self._caches else MOST_CACHES

    @cached_property
    def flush_bytes(self) -> int:
        """What `flush` writes: twice the last level, where that can be written in a few milliseconds.

        Servers and virtual machines claim hundreds of megabytes, shared with strangers: there only the cores' own
        caches are driven out.
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
        """Why this platform cannot be used here, in one line; None when it can."""
        for tool in self.manifest.toolchain:
            if not any(shutil.which(command) for command in tool.commands):
                return f"no {' or '.join(tool.commands)} on PATH ({tool.purpose})"
        for package in self.manifest.requires:
            if importlib.util.find_spec(package) is None:
                return f"the Python package {package} is not installed"
        return None

    def versions(self) -> dict[str, str]:
        """The versions of the toolchain and of the required packages, as far as they are installed."""
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
        """Units and instructions of the device that not every device of its kind has, by their usual names."""
        return frozenset()

    def environment(self) -> dict[str, str]:
        """Variables that a worker of this platform needs besides the evaluator's own."""
        return {}

    def device_nodes(self) -> tuple[str, ...]:
        """What a worker may open besides /dev/null and its like: glob patterns of nodes in /dev.

        A pattern of another place is shown read-only, for a driver that reads its configuration there. On macOS, which
        has no nodes: IOKit user client classes and the dotted names of Mach services.
        """
        return ()

    def sanitizers(self) -> tuple[Sanitizer, ...] | NoSanitizer:
        """What finds errors of memory in this platform's programs, each in a run of its own, or why there is nothing.

        In the order in which they are run: the first finding ends it.
        """
        return NoSanitizer(f"the platform '{self.manifest.name}' has no sanitizer")

    def profilers(self) -> tuple[Profiler | NoProfiler, ...]:
        """Profilers that say more than torch's own, the best first; a missing one says why it is missing."""
        return ()

    def kernel_owners(self, program: str) -> Callable[[str], KernelOwner] | None:  # noqa: ARG002 - for devices
        """What tells whose a kernel is that `watch` saw a program run; None where that cannot be told."""
        return None

    def caveat(self) -> str | None:
        """Why timings taken here say nothing about the device that programs are for; None where they do."""
        return None

    def build_ahead(self, kernel: Path) -> tuple[str, ...]:  # noqa: ARG002 - for platforms that can
        """Build a program that cannot run here: the targets it was built for, none where the platform cannot do that.

        Raises PlatformError when the program does not build.
        """
        return ()

    # --- with torch ---------------------------------------------------------------------------------------

    def device(self) -> str:
        """torch's device of inputs, parameters and outputs."""
        return self.manifest.device

    def process_luck(self, seconds: float) -> float:
        """How much one process of a program may be faster than another one, for good, by where its memory lies.

        As a logarithm, measured by the same program against itself in many pairs of processes (docs/decisions/011); on
        a device by how much of a call of so many seconds is the host's: short calls are mostly launches.
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
        """Variables by which what a program builds is kept in this folder, where `kforge.inline` does not build it."""
        return {}

    def use_precision(self, precision: str) -> None:
        """Let torch's own kernels in this process use what the declared precision allows, and nothing less exact."""

    def device_memory(self) -> DeviceMemory | None:
        """Memory of the device that the referee and a worker share; None where that is host memory, or cannot be."""
        return None

    def conditions(self) -> dict[str, str]:
        """What the device's speed depends on at this moment, by name and in words: clocks, power, temperature.

        For receipts; empty where the device does not tell. It must not take longer than a millisecond or so.
        """
        return {}

    def limits(self) -> tuple[Limit, ...]:
        """What holds the device back at this moment; asked between timed blocks, so it must be quick."""
        return ()

    def stopwatch(self) -> Callable[[], int]:
        """Begin to measure; what this returns waits for the device and gives nanoseconds."""
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
        """Drive earlier data out of the device's caches."""
        # Read and written: a plain fill may bypass the caches altogether.
        self._flush_buffer.add_(1)
        self.synchronize()

    @cached_property
    def _flush_buffer(self) -> torch.Tensor:
        import torch

        return torch.zeros(self.flush_bytes, dtype=torch.uint8, device=self.device())

    def recording(self) -> AbstractContextManager[object]:
        """Around the calls that a profiler from outside this process is to see."""
        return nullcontext()

    def watch(self, call: Callable[[], object]) -> Watched:
        """Run something that waits for the device at its end: the kernels that the device ran meanwhile."""
        from kforge.platforms import kernel_watch

        return kernel_watch.watch(call, self.device())

    def plant(self, error: str) -> None:
        """Commit an error on purpose, in a worker under the sanitizer that names it (`Sanitizer.planted`)."""
        raise PlatformError(f"the platform '{self.manifest.name}' has no error named {error}")

    def measure_peaks(self) -> Peaks:
        """What the device really reaches, in memory traffic and in float32 arithmetic; takes about two seconds."""
        from kforge.platforms import peaks

        return Peaks(
            device=self.describe_device(),
            bytes_per_second=peaks.bytes_per_second(self.device(), self.synchronize),
            flops_per_second=peaks.flops_per_second(self.device(), self.synchronize),
        )

    def describe_device(self) -> str:
        """The device's own name: a number measured here is true for this device only."""
        if self.device().partition(":")[0] == "cpu":
            return host.describe()
        import torch

        module = torch.get_device_module(self.device())
        name = getattr(module, "get_device_name", None)
        return str(name(self.device())) if name is not None else f"{self.device()} on {host.describe()}"


def _package_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        # it is imported under another name than it is installed; looking that up reads every installed package
        distributions = importlib.metadata.packages_distributions().get(package, ())
        return importlib.metadata.version(distributions[0]) if distributions else None


def _tool_version(command: str) -> str:
    """The version in the first line of `command --version`, or that line where it holds no number."""
    try:
        answer = subprocess.run(
            [command, "--version"], capture_output=True, text=True, errors="replace", check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return "does not answer --version"
    line = (answer.stdout or answer.stderr).strip().partition("\n")[0]
    numbers = _VERSION.findall(line)
    return numbers[-1] if numbers else line
