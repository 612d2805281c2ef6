# Made by kforge's smith: algebra=1, kernels=1, group=256, each=8, vector=1, held=16, parts=64, tile=64, products=1
"""Half of the features gate the other half."""

import torch
from torch import nn

ROWS = 512
FEATURES = 1024


class Model(nn.Module):
    def forward(self, x):
        value, gate = x.chunk(2, dim=-1)
        return value * nn.functional.silu(gate)


from kforge import inline


library = inline.compile(r"""
__device__ __forceinline__ float sigmoid_of(float x) {
    return 1.0f / (1.0f + expf((-x)));
}

// silu, mul: 512 x 1024
extern "C" __global__ void __launch_bounds__(256)
fused_silu_mul(const float* __restrict__ x_in, float* __restrict__ mul_2_out) {
    const int thread_index = threadIdx.x;
    const int group_index = blockIdx.x;
    const int i = (group_index * 256 + thread_index) * 4;
    const float4 view_2_four = *reinterpret_cast<const float4*>(x_in + ((i / 1024) * 2048 + i % 1024 + 1024));
    const float4 view_four = *reinterpret_cast<const float4*>(x_in + ((i / 1024) * 2048 + i % 1024));
    const float sigmoid_value_x = sigmoid_of(view_2_four.x);
    const float mul_value_x = (view_2_four.x * sigmoid_value_x);
    const float mul_2_value_x = (view_four.x * mul_value_x);
    const float sigmoid_value_y = sigmoid_of(view_2_four.y);
    const float mul_value_y = (view_2_four.y * sigmoid_value_y);
    const float mul_2_value_y = (view_four.y * mul_value_y);
    const float sigmoid_value_z = sigmoid_of(view_2_four.z);
    const float mul_value_z = (view_2_four.z * sigmoid_value_z);
    const float mul_2_value_z = (view_four.z * mul_value_z);
    const float sigmoid_value_w = sigmoid_of(view_2_four.w);
    const float mul_value_w = (view_2_four.w * sigmoid_value_w);
    const float mul_2_value_w = (view_four.w * mul_value_w);
    *reinterpret_cast<float4*>(mul_2_out + (i)) = make_float4(mul_2_value_x, mul_2_value_y, mul_2_value_z, mul_2_value_w);
}
""", "cuda")


def aligned(tensor):
    """Kernels read four elements at once, at multiples of 16 bytes: a part of another tensor may begin elsewhere."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


class ModelNew(Model):
    def forward(self, x):
        if x.shape != (512, 2048):
            return super().forward(x)
        mul_2 = torch.empty((512, 1024), device=x.device)
        library.fused_silu_mul(aligned(x.contiguous()), mul_2, threads=131072, group_size=256)
        return mul_2
