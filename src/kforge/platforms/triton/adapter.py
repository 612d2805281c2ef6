"""The adapter for Triton: on an NVIDIA GPU, or without a GPU on the host in Triton's interpreter, for correctness
only."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kforge.errors import PlatformError
from kforge.platforms import host
from kforge.platforms.adapter import Adapter as HostAdapter
from kforge.platforms.nvidia.adapter import NvidiaAdapter, missing_device
from kforge.platforms.triton import driver_module

_TARGETS = ("sm_90", "gfx942")
_AHEAD = Path(__file__).with_name("ahead.py")
_DEADLINE = 300.0


class Interpreted(HostAdapter):
    """The adapter for machines without a GPU: kernels are interpreted on the host."""

    def environment(self) -> dict[str, str]:
        # Triton reads this variable when it is imported, so it must be set before.
        return {"TRITON_INTERPRET": "1"}

    def emulated(self) -> str | None:
        return f"kernels ran in Triton's interpreter on the host: {missing_device()}"

    def device(self) -> str:
        return "cpu"

    def describe_device(self) -> str:
        return f"Triton's interpreter on {host.describe()}"


Base: Any = NvidiaAdapter if missing_device() is None else Interpreted
"""The base class of the adapter on this machine. It is chosen once, because the device does not change during a run."""


class Adapter(Base):  # type: ignore[misc]  # the base depends on the machine
    """The adapter for Triton: on an NVIDIA GPU if the machine has one, else in Triton's interpreter on the host.

    The choice is made once, when this module is imported. Programs in the interpreter are verified, and not timed.
    """

    def build_environment(self, folder: Path) -> dict[str, str]:
        cache = folder / "triton"
        driver_module.put(cache)
        return {"TRITON_CACHE_DIR": str(cache)}

    def build_ahead(self, kernel: Path) -> tuple[str, ...]:
        """Compile the kernel for an NVIDIA and an AMD GPU, without needing either. Returns both targets, or none
        without Triton.

        Raises PlatformError if the kernel does not compile.
        """
        if importlib.util.find_spec("triton") is None:
            return ()
        with tempfile.TemporaryDirectory() as cache:
            # `env` sets the variables that must change and passes on the rest of the environment.
            command = ["env", "-u", "TRITON_INTERPRET", f"TRITON_CACHE_DIR={cache}", sys.executable, "-P", str(_AHEAD)]
            try:
                done = subprocess.run(
                    [*command, str(kernel), *_TARGETS], capture_output=True, text=True, timeout=_DEADLINE, check=False
                )
            except subprocess.TimeoutExpired:
                raise PlatformError(f"{kernel.name} did not build within {_DEADLINE:g} s") from None
        if done.returncode:
            last = next(iter(reversed(done.stderr.strip().splitlines())), f"status {done.returncode}")
            raise PlatformError(f"{kernel.name} does not build for {' and '.join(_TARGETS)}: {last}")
        return _TARGETS
