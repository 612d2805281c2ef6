# Made by kforge's smith: algebra=1, kernels=1, group=256, each=8, vector=1, held=16, parts=64, tile=64, products=1
"""A softmax over long rows."""

import torch
from torch import nn

ROWS = 256
COLUMNS = 4096


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


from kforge import inline


library = inline.compile(r"""
// softmax: 256 x 4096
extern "C" __global__ void __launch_bounds__(256)
fused_softmax(const float* __restrict__ x_in, float* __restrict__ div_out) {
    __shared__ __align__(16) float of_max[8];
    __shared__ __align__(16) float of_sum[8];
    const int thread_index = threadIdx.x;
    const int group_index = blockIdx.x;
    const int member = thread_index;
    const int place = group_index;
    float x_held[16];
    float max_all = (-INFINITY);
    #pragma unroll
    for (int k = 0; k < 16; ++k) {
        const int i = member + k * 256;
        x_held[k] = x_in[place * 4096 + i];
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
    max_all = of_max[0];
    #pragma unroll
    for (int other = 1; other < 8; ++other) {
        max_all = fmaxf(max_all, of_max[0 + other]);
    }
    __syncthreads();
    float sum_all = 0.0f;
    #pragma unroll
    for (int k = 0; k < 16; ++k) {
        const int i = member + k * 256;
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
    sum_all = of_sum[0];
    #pragma unroll
    for (int other_2 = 1; other_2 < 8; ++other_2) {
        sum_all = sum_all + of_sum[0 + other_2];
    }
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < 16; ++k) {
        const int i = member + k * 256;
        const float x_value_3 = x_held[k];
        const float sub_value_2 = (x_value_3 - max_all);
        const float exp_value_2 = expf(sub_value_2);
        const float div_value = (exp_value_2 / sum_all);
        div_out[place * 4096 + i] = div_value;
    }
}
""", "cuda")


class ModelNew(Model):
    def forward(self, x):
        if x.shape != (256, 4096):
            return super().forward(x)
        div = torch.empty((256, 4096), device=x.device)
        library.fused_softmax(x.contiguous(), div, threads=65536, group_size=256)
        return div
