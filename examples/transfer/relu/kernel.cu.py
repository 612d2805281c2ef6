# Made by kforge's smith: algebra=1, kernels=1, group=256, each=8, vector=1, held=16, parts=64, tile=64, products=1
"""A linear layer and a rectifier."""

import torch
from torch import nn

ROWS = 512
INNER = 512
OUT = 512


class Model(nn.Module):
    def __init__(self, inner, out):
        super().__init__()
        self.linear = nn.Linear(inner, out)

    def forward(self, x):
        return torch.relu(self.linear(x))


from kforge import inline


library = inline.compile(r"""
__device__ __forceinline__ float maximum_of(float x, float y) {
    return ((x > y || (x != x)) ? x : y);
}

// product of 1 times 512 x 512 x 512, then relu: 262144
extern "C" __global__ void __launch_bounds__(256)
own_linear(const float* __restrict__ left, const float* __restrict__ right, const float* __restrict__ bias, float* __restrict__ maximum_out) {
    __shared__ __align__(16) float lefts[576];
    __shared__ __align__(16) float rights[576];
    const int thread_index = threadIdx.x;
    const int group_index = blockIdx.x;
    const int batch = 0;
    const int first_row = group_index % 256 / 16 * 32;
    const int first_column = group_index % 16 * 32;
    const int thread_row = thread_index / 16;
    const int thread_column = thread_index % 16;
    float sums[4];
    #pragma unroll
    for (int n = 0; n < 4; ++n) {
        sums[n] = 0.0f;
    }
    for (int step = 0; step < 512; step += 16) {
        #pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
            const int n = thread_index + turn * 256;
            const int line = n / 16;
            const int inner = n % 16;
            const int row = first_row + line;
            const int k = step + inner;
            float element = 0.0f;
            element = left[row * 512 + k];
            lefts[inner * 36 + line] = element;
        }
        #pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
            const int n = thread_index + turn * 256;
            const int line = n / 16;
            const int inner = n % 16;
            const int column = first_column + line;
            const int k = step + inner;
            float element = 0.0f;
            element = right[column * 512 + k];
            rights[inner * 36 + line] = element;
        }
        __syncthreads();
        #pragma unroll
        for (int inner = 0; inner < 16; ++inner) {
            float across[2];
            #pragma unroll
            for (int b = 0; b < 2; ++b) {
                across[b] = rights[inner * 36 + thread_column + b * 16];
            }
            #pragma unroll
            for (int a = 0; a < 2; ++a) {
                const float down = lefts[inner * 36 + thread_row * 2 + a];
                #pragma unroll
                for (int b = 0; b < 2; ++b) {
                    sums[a * 2 + b] = down * across[b] + sums[a * 2 + b];
                }
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int a = 0; a < 2; ++a) {
        #pragma unroll
        for (int b = 0; b < 2; ++b) {
            const int row = first_row + thread_row * 2 + a;
            const int column = first_column + thread_column + b * 16;
            const int i = (batch * 512 + row) * 512 + column;
            const float total = sums[a * 2 + b] + bias[column];
            const float maximum_value = maximum_of(total, 0.0f);
            maximum_out[i] = maximum_value;
        }
    }
}
""", "cuda")


class ModelNew(Model):
    def forward(self, x):
        if x.shape != (512, 512):
            return super().forward(x)
        maximum = torch.empty((512, 512), device=self.linear.weight.device)
        library.own_linear(x.contiguous(), self.linear.weight.contiguous(), self.linear.bias.contiguous(), maximum, threads=65536, group_size=256)
        return maximum
