"""A common adapter for platforms whose kernels run on a device that torch does not know: tensors are in host memory.

The device is asked for by a module of `kforge.inline`, in a subprocess: loading a driver starts threads, which a
process that is forked later must not have, and may crash.
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
    """Run a module's `main(file)`, which writes one JSON object about its device, or one with a `reason`.

    `variables` are set besides those of this process. Raises PlatformError with that reason.
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
    """Kernels run on a device of their own, and calls return when the outputs are in host memory."""

    language: str
    """The package of `kforge.inline` that runs the kernels; the function `main` of its module `device` writes
    `name`, `driver` and `is_processor`, and that of its module `rates` `bytes_per_second` and `flops_per_second`."""
    driver: tuple[str, ...] = ()
    """Parts of the paths of the driver's files, as in `KernelDevice`."""
    nodes: tuple[str, ...] = ()
    """Patterns of what a worker may open where it exists, as in `device_nodes`."""

    def probe(self) -> str | None:
        if (reason := super().probe()) is not None:
            return reason
        try:
            self.kernel_device()
        except PlatformError as error:
            return str(error)
        return None

    def device_nodes(self) -> tuple[str, ...]:
        # those that exist: a worker that needs none is not shown the devices in /sys either
        return tuple(form for form in self.nodes if any(True for _ in Path("/").glob(form.lstrip("/"))))

    def told(self, module: str = "device") -> dict[str, Any]:
        """Return what a module of the language's package says of its device. Raises PlatformError."""
        return answer(f"kforge.inline.{self.language}.{module}", tuple(sorted(self.environment().items())))

    def kernel_device(self) -> KernelDevice:
        """Return the device. Raises PlatformError if none was found."""
        told = self.told()
        return KernelDevice(
            name=f"{told['name']} ({told['driver']})", in_worker=told["is_processor"], driver=self.driver
        )

    def kernel_owners(self, program: str) -> Callable[[str], KernelOwner] | None:  # noqa: ARG002 - all are its own
        """Every recorded kernel is the program's own. Where kernels run in the worker, samples of its code say more."""
        return None if self.kernel_device().in_worker else lambda _: "authored"

    def measure_peaks(self) -> Peaks:
        """Return the host's figures, where the tensors are, or the device's where those are higher."""
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
