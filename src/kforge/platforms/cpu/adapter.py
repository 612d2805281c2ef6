"""The adapter for the host's processor. Calls are synchronous, and C++ loops often reach higher rates than torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kforge import platforms
from kforge.inline import cxx
from kforge.platforms import NoSanitizer, asan, host

if TYPE_CHECKING:
    from kforge.platforms import Sanitizer
    from kforge.records import Peaks


class Adapter(platforms.Adapter):
    """The adapter for C++ on the host's processor."""

    line_flags = ("-g1",)

    def features(self) -> frozenset[str]:
        return host.features()

    def sanitizers(self) -> tuple[Sanitizer, ...] | NoSanitizer:
        found = asan.find()
        return found if isinstance(found, NoSanitizer) else (found,)

    def synchronize(self) -> None:
        """Do nothing: a call on the host is done when it returns."""

    def facts(self) -> tuple[tuple[str, str], ...]:
        name = Path(cxx.find_compiler()).name
        return (*super().facts(), ("Compiler", f"{name} {self.versions().get(name, '')} with {' '.join(cxx.FLAGS)}"))

    def measure_peaks(self) -> Peaks:
        """Return for each rate the higher of what torch and plain C++ loops reach, with the rates of the caches.

        A processor's matrix unit for bfloat16 can raise the rate for float32 (`peaks.BFLOATS`). Raises CompileError or
        ToolchainError if the loops cannot be built.
        """
        import torch

        from kforge.platforms import peaks
        from kforge.platforms.cpu import calibration

        found = calibration.measured(super().measure_peaks())
        if host.MATRIX_UNIT not in self.features():
            return found
        bfloats = peaks.flops_per_second(self.device(), self.synchronize, torch.bfloat16)
        return found.model_copy(update={"flops_per_second": max(found.flops_per_second, bfloats / peaks.BFLOATS)})
