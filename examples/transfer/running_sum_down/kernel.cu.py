# Made by kforge's smith: algebra=1, kernels=1, group=256, each=8, vector=1, held=16, parts=64, tile=64, products=1
"""The running sum down the columns."""

import torch
from torch import nn

ROWS = 512
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=0)


from kforge import inline


library = inline.compile(r"""
// cumsum: 1024 x 512
extern "C" __global__ void __launch_bounds__(32)
fused_cumsum(const float* __restrict__ x_in, float* __restrict__ running_sum_out) {
    const int thread_index = threadIdx.x;
    const int group_index = blockIdx.x;
    const int place = group_index * 32 + thread_index;
    float running_sum_running = 0.0f;
    for (int count = 0; count < 512; ++count) {
        const int i = count;
        const float x_value = x_in[place + i * 1024];
        running_sum_running = running_sum_running + x_value;
        const float running_sum_value = running_sum_running;
        running_sum_out[place + i * 1024] = running_sum_value;
    }
}
""", "cuda")


class ModelNew(Model):
    def forward(self, x):
        if x.shape != (512, 1024):
            return super().forward(x)
        running_sum = torch.empty((512, 1024), device=x.device)
        library.fused_cumsum(x.contiguous(), running_sum, threads=1024, group_size=32)
        return running_sum
