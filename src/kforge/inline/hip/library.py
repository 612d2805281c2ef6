"""Kernels of a HIP source: checks the arguments of a call and launches the kernel on torch's current stream. (torch, at
a launch)

A torch that was built for ROCm compiles (with hiprtc), loads and launches the kernels. Its functions have CUDA's names.
"""

from __future__ import annotations

import ctypes
import operator
from typing import TYPE_CHECKING, Any

from kforge.inline import diagnostics, geometry, headers
from kforge.inline.arguments import Arguments, MemoryKind
from kforge.inline.cuda import declarations
from kforge.inline.errors import CompileError, LaunchError
from kforge.inline.hip import checking
from kforge.inline.library import Library

if TYPE_CHECKING:
    from kforge.inline.grammar import Signature

LIMITS = geometry.Limits(group=(1024, 1024, 1024), group_threads=1024, groups=(2**31 - 1, 65535, 65535))
DEVICE = MemoryKind(operator.attrgetter("is_cuda"), "on an AMD GPU (torch's device cuda)")


def build(source: str, flags: tuple[str, ...]) -> Library:
    """Return the library compiled for the present GPU. Without a GPU, only check that the source compiles for gfx90a.

    Raises CompileError if the source does not compile or has no kernel that can be called, and ToolchainError if there
    is neither ROCm nor clang.
    """
    found = [one for one in declarations.parse(source).values() if one.template is None]
    if not found:
        raise CompileError(
            'the source has no kernel: write one as extern "C" __global__ void name(const float* x, int n) { ... }'
        )
    whole = headers.expanded(source, checking.SOURCE)
    if not _has_rocm():
        checking.check(whole, flags)
    kernels = {one.name: HipKernel(one, source, flags, whole) for one in found}
    if _has_rocm():
        for kernel in kernels.values():
            kernel.load()
    return Library(kernels, (build, (source, flags)))


class HipKernel:
    """One `__global__` function that can be launched."""

    def __init__(self, declaration: declarations.Declaration, source: str, flags: tuple[str, ...], whole: str) -> None:
        """`whole` is the source with the text of the header that it includes."""
        self.signature: Signature = declaration.signature()
        self._expression = declaration.expression
        self._source = source
        self._flags = flags
        self._whole = whole
        self._function: Any = None
        fields = [
            (f"argument_{index}", ctypes.c_void_p if parameter.pointer else parameter.element.ctype)
            for index, parameter in enumerate(self.signature.parameters)
        ]
        self._block = type("Block", (ctypes.Structure,), {"_fields_": fields})
        self._offsets = [getattr(self._block, name).offset for name, _ in fields]

    def load(self) -> None:
        """Compile and load the kernel for torch's current device. Raises CompileError if the compiler refuses it."""
        import torch

        try:
            loaded = torch.cuda._compile_kernel(self._whole, self._expression, nvcc_options=list(self._flags))
        except RuntimeError as error:
            raise CompileError(diagnostics.trim(str(error)), str(error)) from error
        self._function = loaded.func

    def __call__(self, *arguments: Any, threads: Any, group_size: Any = 256, shared: int = 0) -> None:
        """Launch the kernel on torch's current stream, and return without waiting for it. `threads` is rounded up to
        whole groups.

        Raises LaunchError if an argument does not fit the kernel, or if there is no AMD GPU.
        """
        name = self.signature.name
        size = geometry.group(name, group_size, LIMITS)
        groups = geometry.grid(name, threads, size, LIMITS)
        values = Arguments(self.signature, DEVICE).convert(arguments)
        if self._function is None:
            raise LaunchError(f"{name}: the source was only checked and cannot run: this torch was built without ROCm")
        if not all(groups):
            return
        import torch
        from torch.cuda import _utils

        block = self._block(*values)
        base = ctypes.addressof(block)
        pointers = (ctypes.c_void_p * max(1, len(values)))(*[base + offset for offset in self._offsets])
        stream = torch.cuda.current_stream()._as_parameter_
        runtime = _utils._get_gpu_runtime_library()
        status = runtime.cuLaunchKernel(self._function, *groups, *size, shared, stream, pointers, None)
        if status:
            raise LaunchError(f"{name}: the launch failed with HIP's error {status}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _kernel, (self._source, self._flags, self.signature.name)


def _kernel(source: str, flags: tuple[str, ...], name: str) -> Any:
    return getattr(build(source, flags), name)


def _has_rocm() -> bool:
    import torch

    return torch.version.hip is not None and torch.cuda.is_available()
