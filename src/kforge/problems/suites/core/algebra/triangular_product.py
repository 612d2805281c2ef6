"""The product of two lower triangular matrices."""

import torch
from torch import nn

SIZE = 512


class Model(nn.Module):
    def forward(self, left, right):
        return torch.tril(torch.tril(left) @ torch.tril(right))


def get_inputs():
    return [torch.randn(SIZE, SIZE).tril(), torch.randn(SIZE, SIZE).tril()]


def get_init_inputs():
    return []
