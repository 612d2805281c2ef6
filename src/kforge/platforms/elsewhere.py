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

_DEADLINE = 120.0


@cache
def answer(module: str) -> dict[str, Any]:
    """Run a module's `main(file)`, which writes one JSON object about its device, or one with a `reason`.

    Raises PlatformError with that reason.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.json"
        code = f"import sys; from {module} import main; main(sys.argv[1])"
        try:
            done = subprocess.run(
                [sys.executable, "-c", code, str(file)], capture_output=True, text=True, timeout=_DEADLINE, check=False
            )
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
    `name`, `driver` and `is_processor`."""
    driver: tuple[str, ...] = ()
    """Parts of the paths of the driver's files, as in `KernelDevice`."""

    def kernel_device(self) -> KernelDevice:
        """Return the device. Raises PlatformError where there is none."""
        told = answer(f"kforge.inline.{self.language}.device")
        return KernelDevice(
            name=f"{told['name']} ({told['driver']})", in_worker=told["is_processor"], driver=self.driver
        )

    def kernel_owners(self, program: str) -> Callable[[str], KernelOwner] | None:  # noqa: ARG002 - all are its own
        """Every recorded kernel is the program's own. Where kernels run in the worker, samples of its code say more."""
        return None if self.kernel_device().in_worker else lambda _: "authored"

    def watch(self, call: Callable[[], object]) -> WatchedKernels:
        with launches.recorded() as found:
            call()
        return summary(Run(*one) for one in found)
