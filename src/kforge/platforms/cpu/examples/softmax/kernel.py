import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
#include <cmath>
#include <cstdint>
#include <cstring>

// exp for x <= 0, without branches, so that the loop around it is vectorized: 2^n times a polynomial.
static inline float exp_negative(float x) {
    x = x < -104.0f ? -104.0f : x;
    const float n = std::floor(x * 1.44269504f + 0.5f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691e-4f;
    p = p * r + 1.3981999e-3f; p = p * r + 8.3334519e-3f; p = p * r + 4.1665796e-2f; p = p * r + 1.6666665e-1f;
    p = p * r + 5.0000001e-1f; p = p * r * r + r + 1.0f;
    const int32_t half = (int32_t)n / 2, rest = (int32_t)n - half;  // two factors, so that neither underflows
    const int32_t bits[2] = {(half + 127) << 23, (rest + 127) << 23};
    float scale[2];
    std::memcpy(scale, bits, sizeof scale);
    return p * scale[0] * scale[1];
}

extern "C" void softmax(const float* __restrict__ x, float* __restrict__ out, int64_t rows, int64_t columns) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {
        const float* in = x + row * columns;
        float* to = out + row * columns;
        float most = in[0], sum = 0;
        #pragma omp simd reduction(max : most)
        for (int64_t i = 0; i < columns; ++i) most = in[i] > most ? in[i] : most;
        #pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < columns; ++i) sum += to[i] = exp_negative(in[i] - most);
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
