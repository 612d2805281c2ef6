# Made by kforge's smith: algebra=1, kernels=1, group=256, each=8, vector=1, held=16, parts=64, tile=64, products=1
"""The running sum of every row."""

import torch
from torch import nn

ROWS = 512
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=-1)


from kforge import inline


library = inline.compile(r"""
// cumsum: 512 x 1024
extern "C" __global__ void __launch_bounds__(256)
fused_cumsum(const float* __restrict__ x_in, float* __restrict__ running_sum_out) {
    __shared__ __align__(16) float of_sum[256];
    const int thread_index = threadIdx.x;
    const int group_index = blockIdx.x;
    const int place = group_index;
    float running_sum_carry = 0.0f;
    for (int tile = 0; tile < 1024; tile += 1024) {
        const int own = tile + thread_index * 4;
        const int stop = (own + 4 < 1024 ? own + 4 : 1024);
        float running_sum_running = 0.0f;
        for (int count = own; count < stop; ++count) {
            const int i = count;
            const float x_value = x_in[place * 1024 + i];
            running_sum_running = running_sum_running + x_value;
        }
        of_sum[thread_index] = running_sum_running;
        __syncthreads();
        int reach = 1;
        for (int level = 0; level < 8; ++level) {
            float other = 0.0f;
            if (thread_index >= reach) {
                other = of_sum[thread_index - reach];
            }
            __syncthreads();
            of_sum[thread_index] = other + of_sum[thread_index];
            __syncthreads();
            reach = reach * 2;
        }
        running_sum_running = running_sum_carry;
        if (thread_index > 0) {
            running_sum_running = running_sum_carry + of_sum[thread_index - 1];
        }
        running_sum_carry = running_sum_carry + of_sum[255];
        __syncthreads();
        for (int count = own; count < stop; ++count) {
            const int i = count;
            const float x_value_2 = x_in[place * 1024 + i];
            running_sum_running = running_sum_running + x_value_2;
            const float running_sum_value = running_sum_running;
            running_sum_out[place * 1024 + i] = running_sum_value;
        }
    }
}
""", "cuda")


class ModelNew(Model):
    def forward(self, x):
        if x.shape != (512, 1024):
            return super().forward(x)
        running_sum = torch.empty((512, 1024), device=x.device)
        library.fused_cumsum(x.contiguous(), running_sum, threads=131072, group_size=256)
        return running_sum
