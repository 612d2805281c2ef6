import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
#include <cmath>
#include <cstdint>

extern "C" void rms_norm(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out,
                         int64_t rows, int64_t features, float eps) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {
        const float* in = x + row * features;
        float* to = out + row * features;
        float sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < features; ++i) sum += in[i] * in[i];
        const float scale = 1 / std::sqrt(sum / features + eps);
        // The row is still in the cache: memory is read once and written once.
        #pragma omp simd
        for (int64_t i = 0; i < features; ++i) to[i] = in[i] * scale * weight[i];
    }
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
        library.rms_norm(x, self.weight, out, x.numel() // features, features, self.eps)
        return out
