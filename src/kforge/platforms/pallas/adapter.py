"""The adapter for Pallas: kernels for TPUs, written in JAX. They run in JAX's interpreter on the host, for correctness
only.

Every kernel is also lowered for a TPU, which needs no TPU. The interpreter is used even on a machine with a TPU,
because nothing here has ever run on one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kforge import platforms
from kforge.errors import PlatformError
from kforge.platforms import host
from kforge.platforms.pallas import interpreter, races

if TYPE_CHECKING:
    from kforge.platforms import NoSanitizer, Sanitizer

_AHEAD = Path(__file__).with_name("ahead.py")
_DEADLINE = 300.0


class Adapter(platforms.Adapter):
    """The adapter for Pallas in JAX's interpreter."""

    def emulated(self) -> str | None:
        return "kernels ran in JAX's interpreter on the host, and were lowered for a TPU without running there"

    def environment(self) -> dict[str, str]:
        # without it, JAX would look for other devices
        return {"JAX_PLATFORMS": "cpu"}

    def prepare(self) -> None:
        super().prepare()
        interpreter.install()

    def describe_device(self) -> str:
        return f"JAX's interpreter on {host.describe()}"

    def sanitizers(self) -> tuple[Sanitizer, ...] | NoSanitizer:
        return (races.sanitizer(self.versions().get("jax", "")),)

    def plant(self, error: str) -> None:
        races.plant(error)

    def build_ahead(self, kernel: Path) -> tuple[str, ...]:
        """Lower the kernels of the example for a TPU, and return that target. Empty without JAX. Raises PlatformError
        if that fails."""
        if self.probe() is not None:
            return ()
        command = ["env", "JAX_PLATFORMS=cpu", sys.executable, str(_AHEAD), str(kernel)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE, check=False)
        except subprocess.TimeoutExpired:
            raise PlatformError(f"{kernel.name} was not lowered within {_DEADLINE:g} s") from None
        if done.returncode:
            last = next(iter(reversed(done.stderr.strip().splitlines())), f"status {done.returncode}")
            raise PlatformError(f"{kernel.name} does not build for a {interpreter.TARGET}: {last}")
        return (interpreter.TARGET,)
