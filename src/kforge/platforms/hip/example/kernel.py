import torch
from torch import nn

from kforge import inline

library = inline.compile(
    r"""
constexpr int GROUP = 256, EACH = 4;

__device__ float warp_sum(float value) {
    for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_xor(value, offset);
    return value;
}

// One group of threads a row. The row stays in registers: memory is read once and written once.
extern "C" __global__ void __launch_bounds__(GROUP)
rms_norm(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out,
         int features, float eps) {
    __shared__ float partial[GROUP / 32];
    const int64_t start = blockIdx.x * (int64_t)features;
    float values[EACH], sum = 0;
    #pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const int i = threadIdx.x + k * GROUP;
        values[k] = i < features ? x[start + i] : 0;
        sum += values[k] * values[k];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = sum;
    __syncthreads();
    sum = warp_sum(threadIdx.x % warpSize < GROUP / warpSize ? partial[threadIdx.x % warpSize] : 0);
    const float scale = rsqrtf(sum / features + eps);
    #pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const int i = threadIdx.x + k * GROUP;
        if (i < features) out[start + i] = values[k] * scale * weight[i];
    }
}
""",
    "hip",
)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        assert features <= 256 * 4
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        features = x.shape[-1]
        rows = x.numel() // features
        library.rms_norm(x, self.weight, out, features, self.eps, threads=rows * 256, group_size=256)
        return out
