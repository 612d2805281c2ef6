import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
#include <cstdint>

extern "C" void mean_squared_error(const float* __restrict__ x, const float* __restrict__ target,
                                   float* __restrict__ out, int64_t count) {
    constexpr int64_t BLOCK = 4096;
    double total = 0;
    // float sums within a block, which vectorize; double sums over the blocks, which stay exact
    #pragma omp parallel for reduction(+ : total)
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t end = first + BLOCK < count ? first + BLOCK : count;
        float sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int64_t i = first; i < end; ++i) sum += (x[i] - target[i]) * (x[i] - target[i]);
        total += sum;
    }
    *out = (float)(total / count);
}
""")


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x, target = x.contiguous(), target.contiguous()
        out = torch.empty(())
        library.mean_squared_error(x, target, out, x.numel())
        return out
