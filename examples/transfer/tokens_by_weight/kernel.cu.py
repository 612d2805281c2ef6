# Made by kforge's smith: algebra=1, kernels=1, group=256, each=8, vector=1, held=16, parts=64, tile=64, products=1
# Rewritten by: einsum
"""Tokens of a batch of sequences times one weight."""

import torch
from torch import nn

BATCH = 8
TOKENS = 128
FEATURES = 256
OUT = 256


class Model(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, out) * features**-0.5)

    def forward(self, x):
        return torch.einsum("btf,fo->bto", x, self.weight)


from kforge import inline


library = inline.compile(r"""
// product of 1 times 1024 x 256 x 256
extern "C" __global__ void __launch_bounds__(256)
own_matmul(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ matmul_out) {
    __shared__ __align__(16) float lefts[576];
    __shared__ __align__(16) float rights[576];
    const int thread_index = threadIdx.x;
    const int group_index = blockIdx.x;
    const int batch = 0;
    const int first_row = group_index % 256 / 8 * 32;
    const int first_column = group_index % 8 * 32;
    const int thread_row = thread_index / 16;
    const int thread_column = thread_index % 16;
    float sums[4];
    #pragma unroll
    for (int n = 0; n < 4; ++n) {
        sums[n] = 0.0f;
    }
    for (int step = 0; step < 256; step += 16) {
        #pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
            const int n = thread_index + turn * 256;
            const int line = n / 16;
            const int inner = n % 16;
            const int row = first_row + line;
            const int k = step + inner;
            float element = 0.0f;
            element = left[row * 256 + k];
            lefts[inner * 36 + line] = element;
        }
        #pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
            const int n = thread_index + turn * 256;
            const int line = n % 32;
            const int inner = n / 32;
            const int column = first_column + line;
            const int k = step + inner;
            float element = 0.0f;
            element = right[column + k * 256];
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
            const int i = (batch * 1024 + row) * 256 + column;
            const float total = sums[a * 2 + b];
            matmul_out[i] = total;
        }
    }
}
""", "cuda")


class ModelNew(Model):
    def forward(self, x):
        if x.shape != (8, 128, 256):
            return super().forward(x)
        matmul = torch.empty((8, 128, 256), device=self.weight.device)
        library.own_matmul(x.contiguous(), self.weight.contiguous(), matmul, threads=65536, group_size=256)
        return matmul
