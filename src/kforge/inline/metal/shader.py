"""Provides `torch.mps.compile_shader` on machines without MPS, so that programs written for PyTorch on a Mac run in the
emulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kforge.inline import headers
from kforge.inline.errors import CompileError, ToolchainError
from kforge.inline.metal.library import build
from kforge.inline.metal.text import SOURCE

if TYPE_CHECKING:
    from kforge.inline.library import Library


def compile_shader(source: str) -> Library:
    """Compile a source as torch.mps.compile_shader does, for tensors in host memory. Raises CompileError and
    ToolchainError."""
    return build(_with_torch_headers(source), ())


def compile_for_machine(source: str, flags: tuple[str, ...]) -> Library:
    """Compile for the GPU of a Mac, or on any other machine for the emulator. Raises CompileError and
    ToolchainError."""
    import torch
    import torch.mps

    source = headers.expanded(source, SOURCE)
    if not torch.backends.mps.is_available():
        return build(source, flags)
    if flags:
        raise ToolchainError(f"torch.mps takes no compiler flags, got {' '.join(flags)}")
    try:
        library: Library = torch.mps.compile_shader(source)
    except (RuntimeError, SyntaxError) as error:
        raise CompileError(str(error).partition("\n")[0], str(error)) from error
    return library


def install() -> bool:
    """Replace `torch.mps.compile_shader` by the emulator. If torch has MPS, change nothing and return False."""
    import torch
    import torch.mps

    if torch.backends.mps.is_available():
        return False
    torch.mps.compile_shader = compile_shader
    torch.mps.synchronize = _nothing
    return True


def _nothing() -> None:
    """Do nothing. It replaces torch.mps.synchronize: every launch of the emulator has finished when it returns."""


def _with_torch_headers(source: str) -> str:
    """Return the source with torch's own Metal headers (<c10/metal/...>) inserted, as torch does."""
    if "<c10/metal/" not in source:
        return source
    import torch
    from torch.utils._cpp_embed_headers import _embed_headers

    folder = Path(torch.__file__).parent / "include"
    embedded: str = _embed_headers([f"{line}\n" for line in source.split("\n")], [folder], set())
    return embedded
