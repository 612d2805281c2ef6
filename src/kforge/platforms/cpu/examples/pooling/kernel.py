import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
#include <cstdint>

extern "C" void mean_of_windows(const float* __restrict__ x, float* __restrict__ out, int64_t planes, int64_t height,
                                int64_t width) {
    #pragma omp parallel for collapse(2)
    for (int64_t plane = 0; plane < planes; ++plane)
        for (int64_t row = 0; row < height - 2; ++row) {
            const float* top = x + (plane * height + row) * width;
            float* to = out + (plane * (height - 2) + row) * (width - 2);
            // neighbouring outputs in neighbouring lanes: nine loads of unit stride
            #pragma omp simd
            for (int64_t i = 0; i < width - 2; ++i) {
                float sum = 0;
                for (int64_t down = 0; down < 3; ++down)
                    for (int64_t right = 0; right < 3; ++right) sum += top[down * width + i + right];
                to[i] = sum / 9;
            }
        }
}
""")


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        images, channels, height, width = x.shape
        out = torch.empty(images, channels, height - 2, width - 2)
        library.mean_of_windows(x, out, images * channels, height, width)
        return out
