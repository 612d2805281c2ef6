"""The small runtime that a program may import: it compiles a source string and launches its kernels on tensors.

    library = inline.compile(source)
    library.kernel_name(x, out, x.numel())

C++ runs on the host. Kernels in an accelerator's language also take the number of threads, and run on torch's current
stream:

    library = inline.compile(source, language)
    library.kernel_name(x, out, x.numel(), threads=x.numel(), group_size=256)

This package imports no other part of kforge, and imports torch only when something is compiled or launched. Signatures
are read from the source, so that a wrong argument raises a LaunchError that names the kernel and the argument, instead
of crashing the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.inline import cuda, cxx, hip, metal, opencl, sycl, webgpu
from kforge.inline.configuration import configure
from kforge.inline.errors import CompileError, InlineError, LaunchError, ToolchainError, UnknownKernel
from kforge.inline.library import Library

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CompileError",
    "InlineError",
    "LaunchError",
    "Library",
    "ToolchainError",
    "UnknownKernel",
    "compile",
    "configure",
]

_LANGUAGES = {
    "c++": cxx.build,
    "cuda": cuda.build,
    "hip": hip.build,
    "metal": metal.compile_for_machine,
    "opencl": opencl.build,
    "sycl": sycl.build,
    "webgpu": webgpu.build,
}
"""For each language, a function that takes (source, flags) and returns a library whose attributes are its kernels."""


def compile(source: str, language: str = "c++", flags: Sequence[str] = ()) -> Library:  # noqa: A001 - the house word
    """Return the library built from this source, from the cache if the same source was built before.

    Raises CompileError if the source does not compile or has no kernel that can be called, and ToolchainError if this
    machine cannot build the language.
    """
    if isinstance(flags, str):
        raise ToolchainError(f"flags must be a list of strings, got the string {flags!r}")
    backend = _LANGUAGES.get(language)
    if backend is None:
        raise ToolchainError(f"no backend for the language {language!r}; known languages: {', '.join(_LANGUAGES)}")
    return backend(source, tuple(flags))
