import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
#include <cstdint>

extern "C" void sums_from_the_end(const float* __restrict__ x, float* __restrict__ out, int64_t rows, int64_t columns) {
    constexpr int64_t TOGETHER = 4;  // rows at a time: four chains of additions hide the latency of one
    #pragma omp parallel for
    for (int64_t first = 0; first < rows; first += TOGETHER) {
        double sums[TOGETHER] = {};
        const int64_t count = rows - first < TOGETHER ? rows - first : TOGETHER;
        for (int64_t i = columns - 1; i >= 0; --i)
            for (int64_t row = 0; row < count; ++row) {
                sums[row] += x[(first + row) * columns + i];
                out[(first + row) * columns + i] = (float)sums[row];
            }
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        library.sums_from_the_end(x, out, x.numel() // x.shape[-1], x.shape[-1])
        return out
