# Made by kforge's smith: algebra=1, kernels=1, group=256, each=8, vector=1, held=16, parts=64, tile=64, products=1
"""The logarithm of the sum of exponentials of every row."""

import torch
from torch import nn

ROWS = 1024
COLUMNS = 512


class Model(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, dim=-1)


from kforge import inline


library = inline.compile(r"""
// logsumexp: 1024 x 512
extern "C" __global__ void __launch_bounds__(256)
fused_logsumexp(const float* __restrict__ x_in, float* __restrict__ add_out) {
    __shared__ __align__(16) float of_max[8];
    __shared__ __align__(16) float of_sum[8];
    const int thread_index = threadIdx.x;
    const int group_index = blockIdx.x;
    const int member = thread_index % 64;
    const int place = group_index * 4 + thread_index / 64;
    float x_held[8];
    float max_all = (-INFINITY);
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int i = member + k * 64;
        x_held[k] = x_in[place * 512 + i];
        const float x_value = x_held[k];
        max_all = fmaxf(max_all, x_value);
    }
    max_all = fmaxf(max_all, __shfl_xor_sync(0xffffffffu, max_all, 16));
    max_all = fmaxf(max_all, __shfl_xor_sync(0xffffffffu, max_all, 8));
    max_all = fmaxf(max_all, __shfl_xor_sync(0xffffffffu, max_all, 4));
    max_all = fmaxf(max_all, __shfl_xor_sync(0xffffffffu, max_all, 2));
    max_all = fmaxf(max_all, __shfl_xor_sync(0xffffffffu, max_all, 1));
    if (thread_index % 32 == 0) {
        of_max[thread_index / 32] = max_all;
    }
    __syncthreads();
    max_all = of_max[thread_index / 64 * 2];
    #pragma unroll
    for (int other = 1; other < 2; ++other) {
        max_all = fmaxf(max_all, of_max[thread_index / 64 * 2 + other]);
    }
    __syncthreads();
    float sum_all = 0.0f;
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int i = member + k * 64;
        const float x_value_2 = x_held[k];
        const float sub_value = (x_value_2 - max_all);
        const float exp_value = expf(sub_value);
        sum_all = sum_all + exp_value;
    }
    sum_all = sum_all + __shfl_xor_sync(0xffffffffu, sum_all, 16);
    sum_all = sum_all + __shfl_xor_sync(0xffffffffu, sum_all, 8);
    sum_all = sum_all + __shfl_xor_sync(0xffffffffu, sum_all, 4);
    sum_all = sum_all + __shfl_xor_sync(0xffffffffu, sum_all, 2);
    sum_all = sum_all + __shfl_xor_sync(0xffffffffu, sum_all, 1);
    if (thread_index % 32 == 0) {
        of_sum[thread_index / 32] = sum_all;
    }
    __syncthreads();
    sum_all = of_sum[thread_index / 64 * 2];
    #pragma unroll
    for (int other_2 = 1; other_2 < 2; ++other_2) {
        sum_all = sum_all + of_sum[thread_index / 64 * 2 + other_2];
    }
    __syncthreads();
    const float log_value = logf(sum_all);
    const float add_value = (max_all + log_value);
    if (member == 0) {
        add_out[place] = add_value;
    }
}
""", "cuda")


class ModelNew(Model):
    def forward(self, x):
        if x.shape != (1024, 512):
            return super().forward(x)
        add = torch.empty((1024, 1), device=x.device)
        library.fused_logsumexp(x.contiguous(), add, threads=65536, group_size=256)
        return add.reshape((1024,))
