"""The adapter for WebGPU: kernels in WGSL, through `wgpu` on any Vulkan or Metal driver. lavapipe is a driver for the
host's processor."""

from __future__ import annotations

import sys
from pathlib import Path

from kforge.inline.webgpu.device import INSTALL_DRIVER
from kforge.platforms.elsewhere import ElsewhereAdapter

_DRIVER_FOLDERS = ("/usr/share/vulkan", "/usr/local/share/vulkan", "/etc/vulkan")
"""Folders in which Vulkan's loader finds its drivers, in `icd.d`."""


class Adapter(ElsewhereAdapter):
    """The adapter for WGSL through WebGPU."""

    language = "webgpu"
    driver = ("/wgpu/", "libvulkan", "libLLVM")
    nodes = ("/dev/dri/*", "/dev/nvidia*", "/dev/kfd", "/dev/dxg", "/etc/vulkan/*/*.json")

    def probe(self) -> str | None:
        # macOS needs no Vulkan driver. Elsewhere this check comes first, because it is faster than loading wgpu
        if sys.platform != "darwin" and not any(
            True for folder in _DRIVER_FOLDERS for _ in Path(folder).glob("icd.d/*.json")
        ):
            return f"no Vulkan driver in {' or '.join(_DRIVER_FOLDERS)}; install one: {INSTALL_DRIVER}"
        return super().probe()

    def environment(self) -> dict[str, str]:
        # disables a layer of Mesa that asks a display server for the preferred GPU, and warns if there is no server
        return {"NODEVICE_SELECT": "1"}

    def build_environment(self, folder: Path) -> dict[str, str]:
        return {"MESA_SHADER_CACHE_DIR": str(folder / "mesa")}
