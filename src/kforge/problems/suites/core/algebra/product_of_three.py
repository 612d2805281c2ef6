"""Two matrices and a narrow one, multiplied from left to right."""

import torch
from torch import nn

SIZE = 512
NARROW = 8


class Model(nn.Module):
    def forward(self, first, second, narrow):
        return first @ second @ narrow


def get_inputs():
    return [torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE), torch.randn(SIZE, NARROW)]


def get_init_inputs():
    return []
