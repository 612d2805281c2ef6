import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
#include <cstdint>
#include <kforge/math.h>

extern "C" void softmax(const float* __restrict__ x, float* __restrict__ out, int64_t rows, int64_t columns) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {
        const float* in = x + row * columns;
        float* to = out + row * columns;
        float most = in[0], sum = 0;
        #pragma omp simd reduction(max : most)
        for (int64_t i = 0; i < columns; ++i) most = in[i] > most ? in[i] : most;
        #pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < columns; ++i) sum += to[i] = kforge::exp(in[i] - most);
        const float scale = 1 / sum;
        #pragma omp simd
        for (int64_t i = 0; i < columns; ++i) to[i] *= scale;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        library.softmax(x, out, x.numel() // x.shape[-1], x.shape[-1])
        return out
