"""Launches on a real device; what can be checked without one is in the other files."""

import subprocess
import sys
import threading

import pytest
import torch

from kforge import inline
from kforge.inline import LaunchError
from kforge.inline.cuda import driver

pytestmark = pytest.mark.device("cuda")


@pytest.fixture
def scale(scale_source):
    return inline.compile(scale_source, "cuda")


def test_the_kernel_computes_and_bounds_hold(scale):
    for count in (1, 255, 256, 257, 100_003):
        x = torch.randn(count, device="cuda")
        out = torch.full((count + 7,), torch.nan, device="cuda")
        assert scale.scale(x, out, count, 2.5, threads=count) is None
        torch.testing.assert_close(out[:count], 2.5 * x, rtol=0, atol=0)
        assert out[count:].isnan().all()


def test_every_kind_of_argument_arrives():
    library = inline.compile(
        """
        #include <cuda_fp16.h>
        #include <cuda_bf16.h>
        __global__ void take(double* out, bool flag, unsigned char small, short medium, float f, double d, int64_t big,
                             const __half* h, const __nv_bfloat16* b, const uint8_t* bytes, const bool* mask) {
            out[0] = flag; out[1] = small; out[2] = medium; out[3] = f; out[4] = d; out[5] = big;
            out[6] = __half2float(h[0]); out[7] = __bfloat162float(b[0]); out[8] = bytes[0]; out[9] = mask[0];
        }
        """,
        "cuda",
    )
    out = torch.zeros(10, dtype=torch.float64, device="cuda")

    def one(value, dtype):
        return torch.tensor([value], dtype=dtype, device="cuda")

    library.take(
        out, True, 255, -7, 0.5, 1e300, -(2**52), one(1.5, torch.float16), one(2.5, torch.bfloat16),
        one(200, torch.uint8), one(True, torch.bool), threads=1, group_size=1,
    )  # fmt: skip
    assert out.tolist() == [1, 255, -7, 0.5, 1e300, -(2**52), 1.5, 2.5, 200, 1]


def test_three_dimensions():
    library = inline.compile(
        """__global__ void mark(int* out, int nx, int ny, int nz) {
            const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
            const int z = blockIdx.z * blockDim.z + threadIdx.z;
            if (x < nx && y < ny && z < nz) atomicAdd(&out[(z * ny + y) * nx + x], 1);
        }""",
        "cuda",
    )
    out = torch.zeros(5, 7, 33, dtype=torch.int32, device="cuda")
    library.mark(out, 33, 7, 5, threads=(33, 7, 5), group_size=(16, 4, 2))
    assert (out == 1).all()


def test_templates_run_with_their_types():
    library = inline.compile(
        """
        #include <cuda_fp16.h>
        template <typename T, int N> __global__ void times(const T* x, T* out, int n) {
            const int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) out[i] = x[i] * T(N);
        }""",
        "cuda",
    )
    for dtype in (torch.float32, torch.float16, torch.float64, torch.int32):
        x = torch.arange(100, device="cuda").to(dtype)
        out = torch.empty_like(x)
        library.times[dtype, 3](x, out, 100, threads=100)
        assert torch.equal(out, x * 3)


def test_dynamic_shared_memory_over_48_kilobytes():
    library = inline.compile(
        """__global__ void turn(const float* x, float* out, int n) {
            extern __shared__ float held[];
            for (int i = threadIdx.x; i < n; i += blockDim.x) held[i] = x[i];
            __syncthreads();
            for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = held[n - 1 - i];
        }""",
        "cuda",
    )
    limit = driver.load().attribute(0, driver.SHARED_OPT_IN)
    for count in (1000, 20_000, limit // 4):
        x = torch.randn(count, device="cuda")
        out = torch.empty_like(x)
        library.turn(x, out, count, threads=1024, group_size=1024, shared=4 * count)
        assert torch.equal(out, x.flip(0))
    with pytest.raises(LaunchError, match=f"^turn: shared must be 0 to {limit} bytes on this device, got {limit + 4}$"):
        library.turn(x, out, 1, threads=1, shared=limit + 4)


def test_kernels_of_one_source_share_its_variables():
    library = inline.compile(
        """__device__ float kept;
        __global__ void put(float value) { kept = value; }
        __global__ void get(float* out) { out[0] = kept; }""",
        "cuda",
    )
    out = torch.zeros(1, device="cuda")
    library.put(2.5, threads=1, group_size=1)
    library.get(out, threads=1, group_size=1)
    assert out.item() == 2.5


def test_launches_go_to_the_current_stream(scale):
    x, out = torch.ones(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    scale.scale(x, out, x.numel(), 3.0, threads=x.numel())  # what is loaded lazily is there now
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(400_000_000)
        scale.scale(x, out, x.numel(), 2.0, threads=x.numel())
        assert not stream.query()
    torch.cuda.current_stream().wait_stream(stream)
    assert (out == 2).all()


def test_launches_are_captured_in_a_graph(scale):
    x, out = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    scale.scale(x, out, 1000, 2.0, threads=1000)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scale.scale(x, out, 1000, 3.0, threads=1000)
    out.zero_()
    graph.replay()
    assert (out == 3).all()


def test_a_thread_that_is_new_to_the_device_can_launch(scale):
    x, out = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    worker = threading.Thread(target=lambda: scale.scale(x, out, 1000, 2.0, threads=1000))
    worker.start()
    worker.join()
    torch.cuda.synchronize()
    assert (out == 2).all()


def test_nothing_to_do_is_no_error(scale):
    empty = torch.empty(0, device="cuda")
    scale.scale(empty, empty, 0, 1.0, threads=0)


def test_what_the_assembler_said_is_what_the_driver_says():
    library = inline.compile(
        """__global__ void indexed(float* x, int m) {
            __shared__ float s[300];
            float a[100];
            for (int i = 0; i < 100; i++) a[i] = x[i * m];
            s[threadIdx.x] = a[m];
            __syncthreads();
            x[0] = s[m];
        }""",
        "cuda",
    )
    kernel, native = library.indexed, driver.load()
    kernel(torch.zeros(4096, device="cuda"), 1, threads=32, group_size=32)
    function = kernel._loaded[0].function
    told = kernel.resources()
    assert told.registers == native.function_attribute(function, driver.FUNCTION_REGISTERS)
    assert told.static_shared == native.function_attribute(function, driver.FUNCTION_STATIC_SHARED)
    assert told.local == native.function_attribute(function, driver.FUNCTION_LOCAL)


def test_occupancy_falls_with_shared_memory(scale):
    full, few = scale.scale.occupancy(256), scale.scale.occupancy(256, shared=100_000)
    assert 0 < few < full <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: "host"}, r"scale: argument 1 \(x\) must be on a CUDA device, got a tensor on cpu"),
        ({0: "double"}, r"scale: argument 1 \(x\) must be float32, got float64"),
        ({1: "strided"}, r"scale: argument 2 \(out\) must be contiguous; pass its \.contiguous\(\)"),
    ],
)
def test_a_wrong_argument_is_one_clear_line(scale, change, message):
    tensors = {
        "host": torch.ones(4), "double": torch.ones(4, device="cuda").double(),
        "strided": torch.ones(8, device="cuda")[::2],
    }  # fmt: skip
    arguments = [torch.ones(4, device="cuda"), torch.ones(4, device="cuda"), 4, 1.0]
    for position, kind in change.items():
        arguments[position] = tensors[kind]
    with pytest.raises(LaunchError, match=f"^{message}$"):
        scale.scale(*arguments, threads=4)


def test_vectors_must_be_aligned_and_bounds_of_a_launch_are_said():
    library = inline.compile("__global__ void __launch_bounds__(128) f(float4* x) { x[0].x = 1; }", "cuda")
    x = torch.zeros(9, device="cuda")
    with pytest.raises(
        LaunchError, match=r"^f: argument 1 \(x\) must begin at a multiple of 16 bytes, as float4 does$"
    ):
        library.f(x[1:5], threads=1)
    with pytest.raises(LaunchError, match=r"^f: at most 128 threads per group because of its \d+ reg.*, got 256$"):
        library.f(x, threads=1)


def test_a_fault_on_the_device_is_said_at_the_next_launch(cache):
    program = f"""
import sys, torch
from pathlib import Path
from kforge import inline
inline.configure(cache=Path({str(cache)!r}))
library = inline.compile("__global__ void f(float* x, int64_t n) {{ x[n] = 1; }}", "cuda")
x = torch.zeros(4, device="cuda")
library.f(x, 2**40, threads=1)
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print("torch:", str(error).splitlines()[0])
try:
    library.f(x, 0, threads=1)
except inline.LaunchError as error:
    print("inline:", error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "torch: CUDA error: an illegal memory access" in done.stdout, done.stderr
    assert "inline: f: the launch failed: CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout
    assert "an earlier kernel failed" in done.stdout


def test_where_the_driver_is_and_what_it_drives():
    native = driver.load()
    assert native.file is not None
    assert native.name(0) == torch.cuda.get_device_name(0)
    major, minor = torch.cuda.get_device_capability(0)
    assert native.architecture(0) == f"sm_{major}{minor}"
    assert native.attribute(0, driver.MULTIPROCESSORS) == torch.cuda.get_device_properties(0).multi_processor_count
    assert native.attribute(0, driver.L2_BYTES) == torch.cuda.get_device_properties(0).L2_cache_size
