"""Compiles and launches WGSL through WebGPU (the package `wgpu`): on Vulkan, Metal or Direct3D 12, and on the host's
processor with lavapipe.

    library = inline.compile(source, "webgpu")
    library.kernel_name(x, out, x.numel(), threads=x.numel(), group_size=256)

What a kernel declares, and what a launch passes:

- A kernel is a `@compute` function. Its parameters are WGSL's built-in values. Its arguments are the module's variables
  with `@group(0)` that it uses, itself or through functions that it calls.
- `@group(0) @binding(N) var<storage, read> x: array<f32>;` takes a tensor; `read_write` makes it an output. The tensors
  of a launch go to the storage variables in the order of their bindings.
- `@group(0) @binding(N) var<uniform> sizes: Sizes;` takes numbers, one for each member of the structure, in order; a
  member of vector type takes a list. The numbers of a launch go to the uniform variables in the order of their
  bindings. Tensors and numbers may be mixed in a call; only the order within each kind counts.
- `@workgroup_size` is written in the source. If it is an override constant (`override group: u32 = 256;` and
  `@workgroup_size(group)`), `group_size` of a launch sets that constant. If it is a number, `group_size` may be left
  out, and must be equal if it is given.
- `threads` is the total number of threads, rounded up to whole groups, so that a kernel must check its bounds. A
  dimension has at most 65535 groups, so a kernel for large tensors must loop or use a second dimension.

    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read_write> out: array<f32>;
    struct Numbers { count: u32, factor: f32 }
    @group(0) @binding(2) var<uniform> numbers: Numbers;
    override group: u32 = 256;

    @compute @workgroup_size(group)
    fn scale(@builtin(global_invocation_id) thread: vec3<u32>) {
        if (thread.x < numbers.count) { out[thread.x] = numbers.factor * x[thread.x]; }
    }

Tensors are in host memory. A launch copies them to the device, runs the kernel, copies the outputs back, and returns
when the outputs are in host memory. Types that WGSL lacks are converted on the way (`tensors.py`): bool and int64
become i32 or u32, and a value that does not fit raises a LaunchError; float16 and bfloat16 become f32, and outputs are
rounded to them.
"""

from kforge.inline.webgpu.library import WebgpuKernel, build

__all__ = ["WebgpuKernel", "build"]
