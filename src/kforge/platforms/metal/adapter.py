"""The adapters for Metal: on a Mac its GPU, through torch's MPS device; on other machines the emulator on the host's
processor, for correctness only.

The part for a Mac follows Apple's and torch's documentation, and has never run on a Mac.
"""

from __future__ import annotations

import sys
from typing import Any

from kforge.inline import ToolchainError
from kforge.inline.metal import compiler
from kforge.inline.metal.shader import install
from kforge.platforms import NoProfiler, NoSanitizer, Profiler, Sanitizer, host
from kforge.platforms.adapter import Adapter as GeneralAdapter

_IMPORT = (
    "run `xctrace record --template 'Metal System Trace' --launch -- python FILE`, export its table "
    "metal-gpu-intervals (docs/metal.md), and import that by `kforge profile --import`"
)


class Emulated(GeneralAdapter):
    """The adapter for other machines: kernels run on the host's processor, and every memory access is checked."""

    def probe(self) -> str | None:
        try:
            compiler.find_compiler()
        except ToolchainError as error:
            return f"{str(error).partition(';')[0]}; install it: apt-get install clang"
        return super().probe()

    def versions(self) -> dict[str, str]:
        try:
            return {**super().versions(), "clang": compiler.version()}
        except ToolchainError:
            return super().versions()

    def emulated(self) -> str | None:
        return "kernels ran in the Metal emulator on the host's processor: this machine is not a Mac"

    def device(self) -> str:
        return "cpu"

    def prepare(self) -> None:
        super().prepare()
        install()

    def sanitizers(self) -> tuple[Sanitizer, ...] | NoSanitizer:
        return NoSanitizer("the Metal emulator checks bounds, barriers and races at every launch, without a second run")

    def describe_device(self) -> str:
        return f"Metal emulator on {host.describe()}"


class OnMac(GeneralAdapter):
    """The adapter for a Mac: kernels run on its GPU."""

    def device_nodes(self) -> tuple[str, ...]:
        # user clients by their names in the IOKit registry of Apple silicon, and the services with which Metal compiles
        return (
            "AGXDeviceUserClient", "AGXSharedUserClient", "IOAccelerationUserClient", "IOSurfaceRootUserClient",
            "IOSurfaceAcceleratorClient", "com.apple.MTLCompilerService", "com.apple.cvmsServ",
        )  # fmt: skip

    def profilers(self) -> tuple[Profiler | NoProfiler, ...]:
        return (NoProfiler("xctrace", f"it writes a folder that has to be exported first: {_IMPORT}"),)

    def describe_device(self) -> str:
        import torch

        return f"{torch.backends.mps.get_name()}, {torch.backends.mps.get_core_count()} GPU cores"


Base: Any = OnMac if sys.platform == "darwin" else Emulated


class Adapter(Base):  # type: ignore[misc]  # the base depends on the machine
    """The adapter for this machine, one of the two above."""
