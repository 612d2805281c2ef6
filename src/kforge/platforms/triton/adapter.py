"""Triton: on an NVIDIA GPU, or, where there is none, on the host by Triton's interpreter, for correctness only."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.errors import PlatformError
from kforge.platforms import host
from kforge.platforms.adapter import Adapter as HostAdapter
from kforge.platforms.nvidia import NvidiaAdapter, missing_device

if TYPE_CHECKING:
    from kforge.platforms import NoProfiler, Profiler
    from kforge.records import Peaks

_TARGETS = ("sm_90", "gfx942")
_AHEAD = Path(__file__).with_name("ahead.py")
_DEADLINE = 300.0


class Adapter(NvidiaAdapter):
    def environment(self) -> dict[str, str]:
        # Read when triton is imported: it must be there before.
        return {"TRITON_INTERPRET": "1"} if self._interpreted else {}

    def caveat(self) -> str | None:
        if (reason := missing_device()) is None:
            return None
        return f"kernels ran in Triton's interpreter on the host: {reason}"

    def device(self) -> str:
        return "cpu" if self._interpreted else super().device()

    def device_nodes(self) -> tuple[str, ...]:
        return () if self._interpreted else super().device_nodes()

    def profilers(self) -> tuple[Profiler | NoProfiler, ...]:
        return () if self._interpreted else super().profilers()

    def prepare(self) -> None:
        if self._interpreted:
            HostAdapter.prepare(self)
        else:
            super().prepare()

    def synchronize(self) -> None:
        if not self._interpreted:
            super().synchronize()

    def flush(self) -> None:
        if not self._interpreted:
            super().flush()

    def describe_device(self) -> str:
        return f"Triton's interpreter on {host.describe()}" if self._interpreted else super().describe_device()

    def measure_peaks(self) -> Peaks:
        """Where kernels are interpreted these are the host's: a roofline for them would have no meaning."""
        return HostAdapter.measure_peaks(self) if self._interpreted else super().measure_peaks()

    def build_ahead(self, kernel: Path) -> tuple[str, ...]:
        """Compiles the example for an NVIDIA and an AMD GPU, neither of which needs to be here."""
        if importlib.util.find_spec("triton") is None:
            return ()
        with tempfile.TemporaryDirectory() as cache:
            # `env` changes what it must and passes on the rest, which nobody here reads.
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

    @property
    def _interpreted(self) -> bool:
        return missing_device() is not None
