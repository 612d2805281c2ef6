import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f)); }

extern "C" __global__ void gelu_bias(const float4* __restrict__ x, const float4* __restrict__ bias,
                                     float4* __restrict__ out, int64_t vectors, int features4) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    const float4 v = x[i], b = bias[i % features4];
    out[i] = make_float4(gelu(v.x + b.x), gelu(v.y + b.y), gelu(v.z + b.z), gelu(v.w + b.w));
}
""", "cuda")


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        vectors = x.numel() // 4
        library.gelu_bias(x, self.bias, out, vectors, x.shape[-1] // 4, threads=vectors)
        return out
