"""The bias is forgotten: every row is normalised, and every value is wrong."""

import torch
from torch import nn

from kforge import inline

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void scaled_softmax(const float* __restrict__ scores, const float* __restrict__ bias,
                               float* __restrict__ out, int64_t rows, int64_t columns, float scale) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {
        const float* x = scores + row * columns;
        float* y = out + row * columns;
        float largest = -INFINITY;
        #pragma omp simd reduction(max : largest)
        for (int64_t i = 0; i < columns; ++i) {
            y[i] = x[i] * scale;
            largest = y[i] > largest ? y[i] : largest;
        }
        float sum = 0.0f;
        #pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < columns; ++i) {
            y[i] = std::exp(y[i] - largest);
            sum += y[i];
        }
        const float inverse = 1.0f / sum;
        #pragma omp simd
        for (int64_t i = 0; i < columns; ++i) y[i] *= inverse;
    }
}
"""

library = inline.compile(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))
        self.scale = columns**-0.5

    def forward(self, scores):
        scores = scores.contiguous()
        out = torch.empty_like(scores)
        columns = scores.shape[-1]
        library.scaled_softmax(scores, self.bias, out, scores.numel() // columns, columns, self.scale)
        return out
