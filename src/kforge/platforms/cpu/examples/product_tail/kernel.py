import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
#include <cstdint>

extern "C" void tail(float* __restrict__ product, const float* __restrict__ bias, const float* __restrict__ scale,
                     int64_t rows, int64_t outputs) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {
        float* at = product + row * outputs;
        #pragma omp simd
        for (int64_t i = 0; i < outputs; ++i) {
            const float y = (at[i] + bias[i]) * scale[i];
            at[i] = y < 0 ? 0 : y;  // NaN stays NaN
        }
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.scale = nn.Parameter(torch.randn(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # BLAS multiplies, and one pass in place does all the rest
        product = torch.mm(x, self.linear.weight.t())
        library.tail(product, self.linear.bias, self.scale, product.shape[0], product.shape[1])
        return product
