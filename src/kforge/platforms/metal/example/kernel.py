import torch
from torch import nn

library = torch.mps.compile_shader(r"""
#include <metal_stdlib>
using namespace metal;

// One group of 256 threads a row: each simdgroup adds up its part, then all read the parts of all.
kernel void rms_norm(device const float* x, device const float* weight, device float* out,
                     constant int& features, constant float& eps,
                     uint row [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup float partial[8];
    device const float* in = x + row * features;
    float sum = 0;
    for (int i = t; i < features; i += 256) sum += in[i] * in[i];
    sum = simd_sum(sum);
    if (lane == 0) partial[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = simd_sum(lane < 8 ? partial[lane] : 0.0f);
    const float scale = rsqrt(sum / features + eps);
    for (int i = t; i < features; i += 256) out[row * features + i] = in[i] * scale * weight[i];
}
""")


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        features = x.shape[-1]
        rows = x.numel() // features
        library.rms_norm(x, self.weight, out, features, self.eps, threads=rows * 256, group_size=256)
        return out
