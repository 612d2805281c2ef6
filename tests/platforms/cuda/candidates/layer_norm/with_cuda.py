import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
    return value;
}

// One warp a row, four rows a group; the row is kept in registers, 16 bytes a load.
template <int VECTORS>
__global__ void __launch_bounds__(128) layer_norm(const float4* __restrict__ x, const float4* __restrict__ weight,
                                                  const float4* __restrict__ bias, float4* __restrict__ out,
                                                  int64_t rows, float eps) {
    constexpr int FEATURES = VECTORS * 128;
    const int64_t row = blockIdx.x * 4ll + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float4* in = x + row * (FEATURES / 4);
    float4 values[VECTORS];
    float sum = 0;
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        values[k] = in[lane + 32 * k];
        sum += values[k].x + values[k].y + values[k].z + values[k].w;
    }
    const float mean = warp_sum(sum) / FEATURES;
    // a second pass over the registers: the difference of squares would cancel
    float square = 0;
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        values[k].x -= mean; values[k].y -= mean; values[k].z -= mean; values[k].w -= mean;
        square += values[k].x * values[k].x + values[k].y * values[k].y + values[k].z * values[k].z + values[k].w * values[k].w;
    }
    const float scale = rsqrtf(warp_sum(square) / FEATURES + eps);
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        const float4 w = weight[lane + 32 * k], b = bias[lane + 32 * k];
        out[row * (FEATURES / 4) + lane + 32 * k] =
            make_float4(values[k].x * scale * w.x + b.x, values[k].y * scale * w.y + b.y,
                        values[k].z * scale * w.z + b.z, values[k].w * scale * w.w + b.w);
    }
}
""", "cuda")


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.kernel = library.layer_norm[features // 128]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        rows = x.numel() // x.shape[-1]
        norm = self.norm
        self.kernel(x, norm.weight, norm.bias, out, rows, norm.eps, threads=rows * 32, group_size=128)
        return out
