"""The adapter for CUDA. NVRTC builds the kernels, also on machines without a GPU."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kforge.errors import PlatformError
from kforge.inline import InlineError, ToolchainError
from kforge.inline.cuda import declarations, toolkit, translation
from kforge.platforms.kernel_sources import kernel_sources
from kforge.platforms.nvidia.adapter import NvidiaAdapter, missing_device

_LANGUAGE = "cuda"


class Adapter(NvidiaAdapter):
    """The adapter for CUDA C++ on NVIDIA GPUs."""

    def probe(self) -> str | None:
        if (reason := super().probe()) is not None:
            return reason
        try:
            toolkit.compiler()
        except ToolchainError as error:
            return str(error)
        return missing_device()

    def versions(self) -> dict[str, str]:
        try:
            return {**super().versions(), "nvrtc": toolkit.compiler().version}
        except ToolchainError:
            return super().versions()

    def build_ahead(self, kernel: Path) -> tuple[str, ...]:
        """Compile the kernels of a program for the default architecture, without running any of the program. Returns
        that architecture; empty without kernels or without NVRTC. Raises PlatformError if a kernel does not compile."""
        sources = kernel_sources(kernel.read_text(encoding="utf-8"), _LANGUAGE)
        try:
            compiler = toolkit.compiler()
        except ToolchainError:
            return ()
        target = translation.DEFAULT_ARCHITECTURE
        options = translation.options((f"--gpu-architecture={target}",), compiler)
        for source in sources:
            plain = (one for one in declarations.parse(source).values() if one.template is None and not one.c_linkage)
            names = tuple(one.expression for one in plain)
            with tempfile.TemporaryDirectory() as place:
                try:
                    translation.compile_in(compiler, source, options, names, Path(place))
                except InlineError as error:
                    line = str(error).partition("\n")[0]
                    raise PlatformError(f"{kernel.name} does not build for {target}: {line}") from error
        return (target,) if sources else ()
