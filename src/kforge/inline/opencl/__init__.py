"""Compiles and launches OpenCL C through any installed driver (ICD), by the package `pyopencl`. It runs on GPUs, and on
the host's processors with PoCL.

    library = inline.compile(source, "opencl")
    library.kernel_name(x, out, x.numel(), threads=x.numel(), group_size=256)

A kernel is a `__kernel void` function. Pointers to `__global` or `__constant` memory take tensors in host memory; a
pointer that is not `const` is an output. Pointers to `__local` memory take no argument: `shared` of a launch has the
size in bytes of each, in order. `threads` is the total number of threads (work-items), rounded up to whole groups.

If the device uses the host's memory, tensors are not copied; otherwise the driver copies them. A launch returns when
the kernel has finished and its outputs are in host memory.
"""

from kforge.inline.opencl.library import OpenclKernel, build

__all__ = ["OpenclKernel", "build"]
