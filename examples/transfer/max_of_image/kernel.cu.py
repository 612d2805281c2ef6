# Made by kforge's smith: algebra=1, kernels=1, group=256, each=8, vector=1, held=16, parts=64, tile=64, products=1
"""Max pooling of an image, three by three with stride two."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 32
SIDE = 96


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)

    def forward(self, x):
        return self.pool(x)


from kforge import inline


library = inline.compile(r"""
// max_pool2d: windows of 3 x 3, 2 x 2 apart, padded by 1 x 1
extern "C" __global__ void __launch_bounds__(256)
own_max_pool2d(const float* __restrict__ x, float* __restrict__ max_pool2d_out) {
    const int thread_index = threadIdx.x;
    const int group_index = blockIdx.x;
    const int i = group_index * 256 + thread_index;
    const int plane = i / 2304;
    const int first_x = i % 48 * 2 - 1;
    const int first_y = i / 48 % 48 * 2 - 1;
    const int first_z = i / 2304 % 1 * 1 - 0;
    float result = (-INFINITY);
    #pragma unroll
    for (int tap_z = 0; tap_z < 1; ++tap_z) {
        const int at_z = first_z + tap_z;
        #pragma unroll
        for (int tap_y = 0; tap_y < 3; ++tap_y) {
            const int at_y = first_y + tap_y;
            if (at_y >= 0) {
                #pragma unroll
                for (int tap_x = 0; tap_x < 3; ++tap_x) {
                    const int at_x = first_x + tap_x;
                    if (at_x >= 0) {
                        const float value = x[((plane * 1 + at_z) * 96 + at_y) * 96 + at_x];
                        result = ((value > result || (value != value)) ? value : result);
                    }
                }
            }
        }
    }
    max_pool2d_out[i] = result;
}
""", "cuda")


class ModelNew(Model):
    def forward(self, x):
        if x.shape != (4, 32, 96, 96):
            return super().forward(x)
        max_pool2d = torch.empty((4, 32, 48, 48), device=x.device)
        library.own_max_pool2d(x.contiguous(), max_pool2d, threads=294912, group_size=256)
        return max_pool2d
