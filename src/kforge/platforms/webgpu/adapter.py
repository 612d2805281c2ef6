"""WebGPU: kernels in WGSL, through `wgpu` on any Vulkan or Metal driver; lavapipe is one for the host's processor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.inline.webgpu.device import INSTALL_DRIVER
from kforge.platforms.elsewhere import ElsewhereAdapter, answer

if TYPE_CHECKING:
    from kforge.records import Peaks

_DRIVER_FOLDERS = ("/usr/share/vulkan", "/usr/local/share/vulkan", "/etc/vulkan")
"""Where Vulkan's loader finds its drivers, in `icd.d`."""
_NODES = ("/dev/dri/*", "/dev/nvidia*", "/dev/kfd", "/dev/dxg")


class Adapter(ElsewhereAdapter):
    language = "webgpu"
    driver = ("/wgpu/", "libvulkan", "libLLVM")

    def probe(self) -> str | None:
        if (reason := super().probe()) is not None:
            return reason
        if sys.platform == "darwin":  # Metal is part of it
            return None
        if not any(True for folder in _DRIVER_FOLDERS for _ in Path(folder).glob("icd.d/*.json")):
            return f"no Vulkan driver in {' or '.join(_DRIVER_FOLDERS)}; install one: {INSTALL_DRIVER}"
        return None

    def environment(self) -> dict[str, str]:
        # a layer of Mesa that asks a display server for the preferred GPU, and complains where there is none
        return {"NODEVICE_SELECT": "1"}

    def device_nodes(self) -> tuple[str, ...]:
        # those that exist: a worker that needs none is not shown the devices in /sys either
        forms = (*_NODES, "/etc/vulkan/*/*.json")
        return tuple(form for form in forms if any(True for _ in Path("/").glob(form.lstrip("/"))))

    def build_environment(self, folder: Path) -> dict[str, str]:
        return {"MESA_SHADER_CACHE_DIR": str(folder / "mesa")}

    def measure_peaks(self) -> Peaks:
        """Return the host's figures, where the tensors are, or the device's where those are higher."""
        host = super().measure_peaks()
        if self.kernel_device().in_worker:
            return host
        rates = answer(f"kforge.inline.{self.language}.rates")
        figures = ("bytes_per_second", "flops_per_second")
        return host.model_copy(update={name: max(getattr(host, name), rates.get(name, 0.0)) for name in figures})
