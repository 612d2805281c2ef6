import torch
from torch import nn

from kforge import inline

library = inline.compile(
    r"""
// One group of threads for each row; the row stays in registers, so memory is read once and written once.
template <int PER_THREAD>
__device__ void rms_norm_row(const float* __restrict__ in, const float* __restrict__ weight, float* __restrict__ to,
                             int features, float eps) {
    __shared__ float partial[32];
    float values[PER_THREAD];
    float sum = 0;
    #pragma unroll
    for (int k = 0; k < PER_THREAD; ++k) {
        const int i = threadIdx.x + k * blockDim.x;
        values[k] = i < features ? in[i] : 0;
        sum += values[k] * values[k];
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = threadIdx.x % 32 < blockDim.x / 32 ? partial[threadIdx.x % 32] : 0;
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
    const float scale = rsqrtf(sum / features + eps);
    #pragma unroll
    for (int k = 0; k < PER_THREAD; ++k) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i < features) to[i] = values[k] * scale * weight[i];
    }
}

extern "C" __global__ void __launch_bounds__(256)
rms_norm(const float* x, const float* weight, float* out, int features, float eps) {
    const int64_t row = blockIdx.x;
    rms_norm_row<4>(x + row * features, weight, out + row * features, features, eps);
}
""",
    "cuda",
)

GROUP = 256
MOST_FEATURES = 4 * GROUP


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        assert features <= MOST_FEATURES
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        features = x.shape[-1]
        rows = x.numel() // features
        library.rms_norm(x, self.weight, out, features, self.eps, threads=rows * GROUP, group_size=GROUP)
        return out
