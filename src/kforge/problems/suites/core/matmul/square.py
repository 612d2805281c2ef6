"""The product of two square matrices."""

import torch
from torch import nn

SIZE = 512


class Model(nn.Module):
    def forward(self, left, right):
        return left @ right


def get_inputs():
    return [torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)]


def get_init_inputs():
    return []
