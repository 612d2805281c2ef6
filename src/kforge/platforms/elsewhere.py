"""A base adapter for platforms whose kernels run on a device that torch does not know. Tensors are in host memory.

A module of `kforge.inline` describes the device, in a subprocess. Loading a driver may crash, and it starts threads,
which a process that forks later must not have.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import PlatformError
from kforge.inline import launches
from kforge.platforms.adapter import Adapter
from kforge.platforms.contracts import KernelDevice
from kforge.platforms.kernels import Run, WatchedKernels, summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.platforms.kernels import KernelOwner
    from kforge.records import Peaks

_DEADLINE = 120.0


@cache
def answer(module: str, variables: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    """Run a module's `main(file)` in a subprocess, and return the JSON object about its device that it writes to the
    file.

    `variables` are environment variables that are added to those of this process. Raises PlatformError if the module
    reports a reason why there is no device, or if the subprocess fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.json"
        code = f"import sys; from {module} import main; main(sys.argv[1])"
        command = ["env", *(f"{name}={value}" for name, value in variables), sys.executable, "-c", code, str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE, check=False)
        except subprocess.TimeoutExpired:
            raise PlatformError(f"the device's driver did not answer within {_DEADLINE:g} s") from None
        if not file.exists():
            last = next(iter(reversed(done.stderr.strip().splitlines())), f"status {done.returncode}")
            raise PlatformError(f"the device's driver crashed: {last}")
        told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if "reason" in told:
        raise PlatformError(told["reason"])
    return told


class ElsewhereAdapter(Adapter):
    """An adapter for kernels on a device that torch does not know. A call returns when its outputs are in host
    memory."""

    language: str
    """Name of the package of `kforge.inline` that runs the kernels. Its module `device` has a function `main` that
    writes `name`, `driver` and `is_processor`; the one of its module `rates` writes `bytes_per_second` and
    `flops_per_second`."""
    driver: tuple[str, ...] = ()
    """Parts of the paths of the driver's files, as in `KernelDevice`."""
    nodes: tuple[str, ...] = ()
    """Patterns of files that a worker may open if they exist, as in `device_nodes`."""

    def probe(self) -> str | None:
        if (reason := super().probe()) is not None:
            return reason
        try:
            self.kernel_device()
        except PlatformError as error:
            return str(error)
        return None

    def device_nodes(self) -> tuple[str, ...]:
        # only patterns that match a file: a worker without any device node does not see the devices in /sys either
        return tuple(form for form in self.nodes if any(True for _ in Path("/").glob(form.lstrip("/"))))

    def told(self, module: str = "device") -> dict[str, Any]:
        """Return what a module of the language's package reports about its device. Raises PlatformError if it
        fails."""
        return answer(f"kforge.inline.{self.language}.{module}", tuple(sorted(self.environment().items())))

    def kernel_device(self) -> KernelDevice:
        """Return the device. Raises PlatformError if the machine has no device for this language."""
        told = self.told()
        return KernelDevice(
            name=f"{told['name']} ({told['driver']})", in_worker=told["is_processor"], driver=self.driver
        )

    def kernel_owners(self, program: str) -> Callable[[str], KernelOwner] | None:  # noqa: ARG002 - no library kernels
        """Return a function that attributes every recorded kernel to the program. None if kernels run in the worker,
        because samples of its code say more."""
        return None if self.kernel_device().in_worker else lambda _: "authored"

    def measure_peaks(self) -> Peaks:
        """Return the higher of the host's rates (tensors are in its memory) and the device's rates."""
        host = super().measure_peaks()
        if self.kernel_device().in_worker:
            return host
        rates = self.told("rates")
        figures = ("bytes_per_second", "flops_per_second")
        return host.model_copy(update={name: max(getattr(host, name), rates.get(name, 0.0)) for name in figures})

    def watch(self, call: Callable[[], object]) -> WatchedKernels:
        with launches.recorded() as found:
            call()
        return summary(Run(*one) for one in found)
