# Made by kforge's smith: algebra=1, kernels=1, group=256, each=8, vector=1, held=16, parts=64, tile=64, products=1
"""Layer norm over the last dimension."""

import torch
from torch import nn

ROWS = 2048
FEATURES = 768


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return self.norm(x)


from kforge import inline


library = inline.compile(r"""
// layer_norm: 2048 x 768
extern "C" __global__ void __launch_bounds__(256)
fused_layer_norm(const float* __restrict__ x_in, const float* __restrict__ norm_weight_in, const float* __restrict__ norm_bias_in, float* __restrict__ add_2_out) {
    __shared__ __align__(16) float of_sum[8];
    const int thread_index = threadIdx.x;
    const int group_index = blockIdx.x;
    const int member = thread_index % 128;
    const int place = group_index * 2 + thread_index / 128;
    float x_held[6];
    float sum_all = 0.0f;
    #pragma unroll
    for (int k = 0; k < 6; ++k) {
        const int i = member + k * 128;
        x_held[k] = x_in[place * 768 + i];
        const float x_value = x_held[k];
        sum_all = sum_all + x_value;
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
    sum_all = of_sum[thread_index / 128 * 4];
    #pragma unroll
    for (int other = 1; other < 4; ++other) {
        sum_all = sum_all + of_sum[thread_index / 128 * 4 + other];
    }
    __syncthreads();
    const float div_value = (sum_all / 768.0f);
    float sum_2_all = 0.0f;
    #pragma unroll
    for (int k = 0; k < 6; ++k) {
        const int i = member + k * 128;
        const float x_value_2 = x_held[k];
        const float sub_value = (x_value_2 - div_value);
        const float mul_value = (sub_value * sub_value);
        sum_2_all = sum_2_all + mul_value;
    }
    sum_2_all = sum_2_all + __shfl_xor_sync(0xffffffffu, sum_2_all, 16);
    sum_2_all = sum_2_all + __shfl_xor_sync(0xffffffffu, sum_2_all, 8);
    sum_2_all = sum_2_all + __shfl_xor_sync(0xffffffffu, sum_2_all, 4);
    sum_2_all = sum_2_all + __shfl_xor_sync(0xffffffffu, sum_2_all, 2);
    sum_2_all = sum_2_all + __shfl_xor_sync(0xffffffffu, sum_2_all, 1);
    if (thread_index % 32 == 0) {
        of_sum[thread_index / 32] = sum_2_all;
    }
    __syncthreads();
    sum_2_all = of_sum[thread_index / 128 * 4];
    #pragma unroll
    for (int other_2 = 1; other_2 < 4; ++other_2) {
        sum_2_all = sum_2_all + of_sum[thread_index / 128 * 4 + other_2];
    }
    __syncthreads();
    const float div_2_value = (sum_2_all / 768.0f);
    const float add_value = (div_2_value + 1e-05f);
    const float rsqrt_value = (1.0f / sqrtf(add_value));
    #pragma unroll
    for (int k = 0; k < 6; ++k) {
        const int i = member + k * 128;
        const float x_value_3 = x_held[k];
        const float sub_value_2 = (x_value_3 - div_value);
        const float mul_2_value = (sub_value_2 * rsqrt_value);
        const float norm_weight_value = norm_weight_in[i];
        const float mul_3_value = (mul_2_value * norm_weight_value);
        const float norm_bias_value = norm_bias_in[i];
        const float add_2_value = (mul_3_value + norm_bias_value);
        add_2_out[place * 768 + i] = add_2_value;
    }
}
""", "cuda")


class ModelNew(Model):
    def forward(self, x):
        if x.shape != (2048, 768):
            return super().forward(x)
        add_2 = torch.empty((2048, 768), device=self.norm.weight.device)
        library.fused_layer_norm(x.contiguous(), self.norm.weight.contiguous(), self.norm.bias.contiguous(), add_2, threads=262144, group_size=256)
        return add_2
