"""HIP sources on a machine without an AMD GPU: clang compiles them for one, and wrong ones are refused."""

from __future__ import annotations

import pickle
import shutil
from typing import TYPE_CHECKING

import pytest
import torch

from kforge import inline
from kforge.inline.hip import checking

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(torch.version.hip is not None, reason="this torch has ROCm")

SOURCE = """#include <hip/hip_runtime.h>
extern "C" __global__ void __launch_bounds__(256)
softmax(const float* __restrict__ x, float* out, int64_t width, float scale) {
    __shared__ __align__(16) float partial[256];
    extern __shared__ float row[];
    const int64_t start = blockIdx.x * width;
    float best = -INFINITY;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) best = fmaxf(best, row[i] = x[start + i] * scale);
    for (int step = warpSize / 2; step > 0; step /= 2) best = max(best, __shfl_xor(best, step));
    partial[threadIdx.x] = best;
    __syncthreads();
    float4 four = make_float4(expf(best), tanhf(best), rsqrtf(best), powf(best, 2.0f));
    out[start + threadIdx.x] = partial[255 - threadIdx.x] + four.x + four.w + __half2float(__float2half(erff(best)));
    if (threadIdx.x == 0) atomicAdd(out, best);
}

template <typename T> __device__ T twice(T value) { return value + value; }

extern "C" __global__ void double_all(double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x + 0 * gridDim.y;
    if (i < n) x[i] = twice(fma(x[i], 2.0, sqrt(x[i])));
}
"""


def test_a_source_is_compiled_for_an_amd_gpu() -> None:
    assembly = checking.check(SOURCE)
    assert f"amdhsa--{checking.TARGET}" in assembly
    assert "softmax:" in assembly
    assert "double_all:" in assembly
    assert "s_barrier" in assembly
    assert "v_add_f64" in assembly or "v_fma_f64" in assembly


@pytest.mark.parametrize(
    ("right", "wrong", "line", "said"),
    [
        ("best = fmaxf(", "best = no_such_function(", 8, "no_such_function"),
        ("expf(best), tanhf", "expf(best, best), tanhf", 12, "expf"),
        ("const int64_t start", "const torch::Tensor start", 6, "torch"),
        ("twice(fma(", "thrice(fma(", 21, "thrice"),
    ],
)
def test_what_does_not_compile_is_refused_with_the_line(right: str, wrong: str, line: int, said: str) -> None:
    assert right in SOURCE
    with pytest.raises(inline.CompileError, match=rf"kernel\.hip:{line}:.*{said}"):
        inline.compile(SOURCE.replace(right, wrong), "hip")


def test_without_rocm_a_launch_is_checked_and_refused() -> None:
    library = inline.compile(SOURCE, "hip")
    with pytest.raises(inline.LaunchError, match=r"^double_all: takes 2 arguments \(x, n\), got 1$"):
        library.double_all(torch.ones(4, dtype=torch.float64), threads=4)
    with pytest.raises(inline.LaunchError, match=r"argument 1 \(x\) must be on an AMD GPU"):
        library.double_all(torch.ones(4, dtype=torch.float64), 4, threads=4)
    with pytest.raises(inline.LaunchError, match="group_size=2048"):
        library.double_all(torch.ones(4, dtype=torch.float64), 4, threads=4, group_size=2048)
    again = pickle.loads(pickle.dumps(library)).double_all
    assert again.signature == library.double_all.signature


def test_a_kernel_without_tensors_says_that_it_cannot_run_here() -> None:
    library = inline.compile('extern "C" __global__ void nothing(int n) { }', "hip")
    with pytest.raises(inline.LaunchError, match="cannot run: this torch was built without ROCm"):
        library.nothing(1, threads=1)


def test_a_source_without_a_kernel_is_refused() -> None:
    with pytest.raises(inline.CompileError, match="the source has no kernel"):
        inline.compile("__device__ int one() { return 1; }", "hip")


def test_without_clang_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert shutil.which("sh") is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    checking.find_compiler.cache_clear()
    try:
        with pytest.raises(inline.ToolchainError, match="install the package clang"):
            inline.compile(SOURCE, "hip")
    finally:
        checking.find_compiler.cache_clear()
