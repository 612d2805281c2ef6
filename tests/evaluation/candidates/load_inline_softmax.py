"""A candidate as models write it for KernelBench: a torch C++ extension, built by torch itself."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

torch::Tensor scaled_softmax(torch::Tensor scores, torch::Tensor bias, double scale) {
    return torch::softmax(scores * scale + bias, -1);
}
"""

extension = load_inline(name="scaled_softmax", cpp_sources=SOURCE, functions=["scaled_softmax"], extra_cflags=["-O0"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))
        self.scale = columns**-0.5

    def forward(self, scores):
        return extension.scaled_softmax(scores, self.bias, self.scale)
