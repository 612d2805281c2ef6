import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
#include <cstdint>

extern "C" void biased_swish(const float* __restrict__ x, const float* __restrict__ residual,
                             const float* __restrict__ bias, float* __restrict__ out, int64_t rows, int64_t features) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = row * features;
        // four operators in one pass: each input is read once, the output is written once
        #pragma omp simd
        for (int64_t i = 0; i < features; ++i) {
            const float y = x[at + i] + bias[i];
            float gate = y + 3;
            gate = gate < 0 ? 0 : gate;
            gate = gate > 6 ? 6 : gate;
            out[at + i] = residual[at + i] + y * gate / 6;
        }
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        out = torch.empty_like(x)
        features = x.shape[-1]
        library.biased_swish(x, residual, self.bias, out, x.numel() // features, features)
        return out
