"""The adapter for OpenCL, on any installed driver (ICD). PoCL is a driver for the host's processors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.platforms import host
from kforge.platforms.elsewhere import ElsewhereAdapter
from kforge.platforms.opencl import oclgrind

if TYPE_CHECKING:
    from kforge.platforms import NoSanitizer, Sanitizer

_VENDORS = "/etc/OpenCL/vendors"
"""Folder in which the OpenCL loader finds its drivers."""
_FROM_PACKAGES = Path(sys.prefix) / "lib" / "libintelocl.so"
"""Intel's driver for processors, as its package on PyPI installs it. The loader does not look there by itself."""


class Adapter(ElsewhereAdapter):
    """The adapter for OpenCL C on any OpenCL device."""

    language = "opencl"
    driver = ("/pyopencl/", "libOpenCL", "libpocl", "libLLVM", "libintelocl", "libtbb")
    nodes = (_VENDORS, "/dev/dri/*", "/dev/nvidia*", "/dev/kfd", "/dev/dxg", "/dev/mali*")

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "driver": self.told()["driver"]}

    def features(self) -> frozenset[str]:
        told = self.told()
        return frozenset(name for name, there in (("fp64", told["doubles"]), ("fp16", told["halves"])) if there)

    def emulated(self) -> str | None:
        told = self.told()
        return f"{told['driver']}: no driver has a real device" if told["is_emulated"] else None

    def environment(self) -> dict[str, str]:
        variables = {"POCL_MAX_PTHREAD_COUNT": str(host.threads())}
        if _FROM_PACKAGES.exists() and not any(Path(_VENDORS).glob("*.icd")):
            variables["OCL_ICD_VENDORS"] = str(_FROM_PACKAGES)
        return variables

    def build_environment(self, folder: Path) -> dict[str, str]:
        place = folder / "driver"
        place.mkdir(parents=True, exist_ok=True)
        return {"POCL_CACHE_DIR": str(place), "CUDA_CACHE_PATH": str(place)}

    def sanitizers(self) -> tuple[Sanitizer, ...] | NoSanitizer:
        return oclgrind.find()

    def plant(self, error: str) -> None:
        oclgrind.plant(error)
