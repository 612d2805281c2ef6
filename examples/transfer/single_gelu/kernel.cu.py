"""GELU by the error function, four elements a thread."""

import torch
from torch import nn

from kforge import inline

library = inline.compile(
    r"""
extern "C" __global__ void gelu(const float* __restrict__ x, float* __restrict__ out, int64_t count) {
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += stride) {
        // erfc keeps the relative precision of the small results on the negative side
        out[i] = 0.5f * x[i] * erfcf(-0.70710678f * x[i]);
    }
}
""",
    "cuda",
)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        library.gelu(x, out, x.numel(), threads=(x.numel() + 3) // 4, group_size=256)
        return out
