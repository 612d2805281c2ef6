"""Checks a HIP source with a plain clang: it is compiled to the assembly of an AMD GPU, and nothing is linked."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

from kforge.inline import diagnostics, steps
from kforge.inline.errors import CompileError, ToolchainError

COMPILERS = ("clang++", *(f"clang++-{version}" for version in range(21, 13, -1)))
TARGET = "gfx90a"
"""The architecture for which sources are checked: AMD's MI200."""
SOURCE = "kernel.hip"
_INCLUDE = Path(__file__).parent / "include"
_FLAGS = (
    "-x", "hip", "--cuda-device-only", f"--offload-arch={TARGET}", "-nogpulib", "-nogpuinc", "-nostdinc++",
    "-std=c++17", "-fdeclspec", "-O1", "-S", "-ferror-limit=20", "-fno-color-diagnostics", "-Wno-everything",
    "-include", "kforge_hip.h",
)  # fmt: skip


@cache
def find_compiler() -> str:
    """Return the path of clang. Raises ToolchainError if there is none."""
    for name in COMPILERS:
        if found := shutil.which(name):
            return found
    raise ToolchainError("no clang found (looked for clang++), which checks HIP sources; install the package clang")


def check(source: str, flags: tuple[str, ...] = ()) -> str:
    """Compile the source and return the assembly. Raises CompileError and ToolchainError."""
    compiler = find_compiler()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / SOURCE).write_text(source, encoding="utf-8")
        status, log = steps.run([compiler, *_FLAGS, f"-I{_INCLUDE}", *flags, SOURCE, "-o", "kernel.s"], place)
        if status:
            raise CompileError(diagnostics.trim(log) or f"clang failed with status {status}", log)
        return (place / "kernel.s").read_text(encoding="utf-8")
