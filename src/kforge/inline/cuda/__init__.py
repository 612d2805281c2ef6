"""CUDA C++ through NVRTC and the driver: no nvcc, no host compiler and no torch header, so a build takes 0.1 s.

    library = inline.compile(source, "cuda")
    library.kernel_name(x, out, x.numel(), threads=x.numel(), group_size=256, shared=0)

A kernel is a `__global__` function; a template is given its arguments first, `library.name["float", 4](...)`.
`library.name.resources()` says what one thread takes. Builds need no device, launches do.
"""

from kforge.inline.cuda.library import build

__all__ = ["build"]
