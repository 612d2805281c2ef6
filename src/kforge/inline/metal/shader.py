"""`torch.mps.compile_shader` where there is no MPS: programs written for PyTorch on a Mac run on the emulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kforge.inline.errors import CompileError, ToolchainError
from kforge.inline.metal.library import build

if TYPE_CHECKING:
    from kforge.inline.library import Library


def compile_shader(source: str) -> Library:
    """What torch.mps.compile_shader does, for tensors in host memory. Raises CompileError and ToolchainError."""
    return build(_with_torch_headers(source), ())


def compile_for_machine(source: str, flags: tuple[str, ...]) -> Library:
    """Compile for the GPU of a Mac; on any other machine, for the emulator. Raises CompileError and ToolchainError."""
    import torch
    import torch.mps

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
    """Put the emulator behind `torch.mps.compile_shader`; False, and nothing is changed, where MPS is there."""
    import torch
    import torch.mps

    if torch.backends.mps.is_available():
        return False
    torch.mps.compile_shader = compile_shader
    torch.mps.synchronize = _nothing
    return True


def _nothing() -> None:
    """Every launch of the emulator has ended when it returns."""


def _with_torch_headers(source: str) -> str:
    """Torch's own Metal headers (<c10/metal/...>) are put into the source, as torch does."""
    if "<c10/metal/" not in source:
        return source
    import torch
    from torch.utils._cpp_embed_headers import _embed_headers

    folder = Path(torch.__file__).parent / "include"
    embedded: str = _embed_headers([f"{line}\n" for line in source.split("\n")], [folder], set())
    return embedded
