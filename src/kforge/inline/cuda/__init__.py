"""Compiles CUDA C++ with NVRTC and launches kernels through the driver. It needs no nvcc, host compiler or torch
header, so that a build takes 0.1 s.

    library = inline.compile(source, "cuda")
    library.kernel_name(x, out, x.numel(), threads=x.numel(), group_size=256, shared=0)

A kernel is a `__global__` function. A template gets its arguments first: `library.name["float", 4](...)`.
`library.name.resources()` returns the registers and memory that one thread takes. Builds need no device; launches do.
"""

from kforge.inline.cuda.library import build

__all__ = ["build"]
