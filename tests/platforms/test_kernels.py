"""Whose a kernel is, by the names that were seen on an H200; and what is made of a profiler's events."""

import pytest
import torch
from torch._C._autograd import DeviceType

from kforge.platforms import kernel_watch
from kforge.platforms.kernels import KernelLaunches, Run, WatchedKernels, summary
from kforge.platforms.nvidia import kernels as nvidia_kernels

PROGRAM = '''
import torch, triton
import triton.language as tl
from torch.utils.cpp_extension import load_inline
from kforge import inline

library = inline.compile(r"""
template <typename T, int N> __global__ void scale(const T* x, T* out) { }
namespace ours { namespace { __global__ void __launch_bounds__(256) shift(float* x) { } } }
extern "C" __global__ void rectify(float* out, int64_t n) { }
__device__ float helper(float x) { return x; }
// a dummy of a library's name is nobody's own
extern "C" __global__ void sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32(float* x) { }
namespace cutlass { template <typename T> __global__ void Kernel2(T x) { } }
__global__ void splitKreduce_kernel(float* x) { }
""", "cuda")
module = load_inline("m", "torch::Tensor f(torch::Tensor x);", """
#include <torch/extension.h>
__global__ void extension_kernel(const float* __restrict__ x, c10::Half* y) { }
torch::Tensor f(torch::Tensor x) { extension_kernel<<<1, 1>>>(nullptr, nullptr); return x; }
""")

@triton.autotune(configs=[], key=[])
@triton.jit
def own_matmul(x, BLOCK: tl.constexpr):
    pass

@triton.jit(do_not_specialize=["n"])
def fused_softmax(x, n):
    pass

def plain(x):
    pass

def wrapped(x):
    pass

compiled = triton.jit(wrapped)
exec("import triton\\n@triton.jit\\ndef written(x):\\n    pass\\n")
'''
AUTHORED = [
    "own_matmul", "fused_softmax", "wrapped", "written", "rectify", "extension_kernel",
    "void scale<float, 4>(float const*, float*)", "_Z5scaleIfLi4EEvPKT_PS0_",
    "ours::(anonymous namespace)::shift(float*)", "_ZN4ours27_GLOBAL__N__a1b2c3_9_kernel5shiftEPf",
    "std::enable_if<!(false), void>::type scale<float, 4>(float const*)", "ours::<unnamed>::shift(float *)",
    "extension_kernel(float const*, c10::Half*)",
]  # fmt: skip
LIBRARY = [
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(cutlass_80_simt_sgemm_128x64_8x5_nn_align1::P)",
    "cutlass_80_simt_sgemm_128x64_8x5_nn_align1",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32",
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize64x64x8_stage3_warpsize2x2x1_g1_ffma_cudnn",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float>(cublasLt::cublasSplitKParams<float>)",
    "splitKreduce_kernel",
    "void cublasLt::epilogue::impl::globalKernel<8, 32, float>(float)",
    "void sgemm_largek_lds64<true, false, 5, 5, 4, 4, 4, 32>(float*, float const*, float const*, int)",
    "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false>(cudnn::engines_precompiled::P)",
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int)",
    "void convolveNd_dgrad_float_engine<float, 3, 512, 6, 5, 3, 3, 3, false>(int)",
    "fmha_cutlassF_f32_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(float*, float const*, int)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)",
    "_ZN2at6native13reduce_kernelILi512EEEvT_",
    "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, cublasGemvTensor<float> > >(int)",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float>(float)",
    "ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "triton_poi_fused_add_0",
    "nvjet_hsh_64x8_64x16", "plain", "helper", "ours::rectify", "other::shift(float*)", "",
]  # fmt: skip
COPIES = ["Memcpy DtoD (Device -> Device)", "Memcpy HtoD (Pageable -> Device)", "Memset (Device)"]


@pytest.mark.parametrize(
    ("kernel", "owner"),
    [*((k, "authored") for k in AUTHORED), *((k, "library") for k in LIBRARY), *((k, "copy") for k in COPIES)],
)
def test_whose_a_kernel_is(kernel: str, owner: str) -> None:
    assert nvidia_kernels.owners(PROGRAM)(kernel) == owner


def test_names_that_honest_programs_use_are_no_librarys() -> None:
    names = ["gemm", "sgemm", "gemm_kernel", "hopper_gemm", "gemv", "gemv_kernel", "dot_kernel", "reduce_kernel",
             "softmax", "flash_forward", "splitk_reduce", "conv2d", "cub_like", "memcpy_kernel", "Memset"]  # fmt: skip
    source = "\n".join(f"__global__ void {name}(float* x) {{ }}" for name in names)
    owner = nvidia_kernels.owners(f'SOURCE = """{source}"""')
    assert [name for name in names if owner(name) != "authored"] == []


def test_kernels_of_one_name_are_added_up_and_what_overlaps_is_counted_once() -> None:
    runs = [Run("a", 0, 1000), Run("b", 500, 2500), Run("a", 4000, 5000), Run("b", 600, 700)]
    assert summary(runs) == WatchedKernels((KernelLaunches("b", 2, 2100e-9), KernelLaunches("a", 2, 2000e-9)), 3500e-9)
    assert summary([]) == WatchedKernels((), 0.0)


class Event:
    def __init__(self, name: str, kind: str, device: DeviceType = DeviceType.CUDA) -> None:
        self._name, self._kind, self._device = name, kind, device

    def name(self) -> str:
        return self._name

    def activity_type(self) -> str:
        return self._kind

    def device_type(self) -> DeviceType:
        return self._device

    def start_ns(self) -> int:
        return 1000

    def duration_ns(self) -> int:
        return 50


def test_only_what_the_device_worked_on_counts() -> None:
    events = [
        Event("own", "kernel"),
        Event("Memset (Device)", "gpu_memset"),
        Event("mine", "gpu_user_annotation"),
        Event("Stream Synchronize", "cuda_sync"),
        Event("cudaLaunchKernel", "cuda_runtime", DeviceType.CPU),
    ]
    assert kernel_watch.runs(events) == [Run("own", 1000, 1050), Run("Memset (Device)", 1000, 1050)]


def test_where_nothing_can_be_watched_the_call_is_made_and_nothing_is_seen() -> None:
    made = []
    assert kernel_watch.watch(lambda: made.append(torch.ones(3).sum()), "cpu") == WatchedKernels((), 0.0)
    assert len(made) == 1
    with pytest.raises(ZeroDivisionError):
        kernel_watch.watch(lambda: 1 / 0, "cpu")
