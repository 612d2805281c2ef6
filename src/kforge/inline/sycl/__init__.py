"""Compiles and launches SYCL C++ by the runtime and compiler in Intel's packages on PyPI, for Linux on x86-64. It runs
on Intel GPUs, and on the host's processors with the package `intel-opencl-rt`.

    library = inline.compile(source, "sycl")
    library.kernel_name(x, out, x.numel(), threads=x.numel(), group_size=256)

A kernel is a free function:

    extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))
    void kernel_name(const float* x, float* out, int n) {
        const int i = syclext::this_work_item::get_nd_item<1>().get_global_linear_id();
        if (i < n) out[i] = 2 * x[i];
    }

`prelude.hpp` comes before every source: it has the headers that most kernels need, and the names `syclext` for
`sycl::ext::oneapi` and `syclexp` for `sycl::ext::oneapi::experimental`. A source may include further headers of SYCL.

Pointers take tensors in host memory; a pointer that is not `const` is an output. `threads` is the total number of
threads (work-items), rounded up to whole groups. The first number of `threads` and `group_size` is the kernel's last
dimension, because that one varies fastest in SYCL.

If the device can access the host's memory, tensors are not copied; otherwise they are copied for every launch. A launch
returns when the kernel has finished and its outputs are in host memory.

`launcher.cpp` is the part that calls SYCL. It is compiled by the machine's C++ compiler, once per cache folder.
"""

from kforge.inline.sycl.library import SyclKernel, build

__all__ = ["SyclKernel", "build"]
