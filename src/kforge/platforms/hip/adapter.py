"""The adapter for AMD GPUs, with a torch that was built for ROCm and calls its device `cuda`. On other machines
programs are only built.

No part of it has run on an AMD GPU.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from kforge.errors import PlatformError
from kforge.inline import InlineError, ToolchainError
from kforge.inline.hip import checking
from kforge.platforms import Adapter as GeneralAdapter
from kforge.platforms.kernel_sources import kernel_sources

_DRIVER = Path("/dev/kfd")
_LANGUAGE = "hip"


class Adapter(GeneralAdapter):
    """The adapter for HIP C++ on AMD GPUs."""

    def probe(self) -> str | None:
        return super().probe() or _missing_device() or _torch_without_rocm()

    def device_nodes(self) -> tuple[str, ...]:
        return (str(_DRIVER), "/dev/dri/renderD*", "/sys/class/kfd", "/sys/devices/virtual/kfd")

    def use_precision(self, precision: str) -> None:
        import torch

        torch.set_float32_matmul_precision("highest" if precision == "strict" else "high")

    def build_ahead(self, kernel: Path) -> tuple[str, ...]:
        """Compile the kernels of a program with clang for one architecture, without running any of the program. Returns
        that architecture; empty if the program has no kernels. Raises PlatformError if a kernel does not compile or
        there is no clang."""
        sources = kernel_sources(kernel.read_text(encoding="utf-8"), _LANGUAGE)
        for source in sources:
            try:
                checking.check(source)
            except ToolchainError as error:
                raise PlatformError(
                    f"{_missing_device() or _torch_without_rocm()}; and {str(error).partition(';')[0]}; "
                    "install it: apt-get install clang"
                ) from error
            except InlineError as error:
                line = str(error).partition("\n")[0]
                raise PlatformError(f"{kernel.name} does not build for {checking.TARGET}: {line}") from error
        return (checking.TARGET,) if sources else ()


def _missing_device() -> str | None:
    return None if _DRIVER.exists() else f"no AMD GPU found ({_DRIVER} does not exist)"


def _torch_without_rocm() -> str | None:
    """Return a reason if this torch was built without ROCm, otherwise None. It looks at torch's files, because the
    orchestrator does not import torch."""
    spec = importlib.util.find_spec("torch")
    places = spec.submodule_search_locations if spec is not None else None
    if places and not any((Path(place) / "lib" / "libtorch_hip.so").exists() for place in places):
        return "there is an AMD GPU, but this torch was built without ROCm"
    return None
