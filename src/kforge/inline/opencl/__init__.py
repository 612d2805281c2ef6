"""OpenCL C through any installed driver (ICD), by the package `pyopencl`: GPUs, and the host's processors by PoCL.

    library = inline.compile(source, "opencl")
    library.kernel_name(x, out, x.numel(), threads=x.numel(), group_size=256)

A kernel is a `__kernel void` function. Pointers to `__global` or `__constant` memory take tensors, which are in host
memory; a pointer that is not `const` is an output. Pointers to `__local` memory take no argument: `shared` of a launch
has the bytes of each, in order. `threads` is the number of threads (work-items) in all, rounded up to whole groups.

Tensors are not copied where the device uses the host's memory; elsewhere the driver copies them. A launch returns when
the kernel is done and its outputs are in host memory.
"""

from kforge.inline.opencl.library import OpenclKernel, build

__all__ = ["OpenclKernel", "build"]
