"""One number for every pair of vectors: x times a matrix times y."""

import torch
from torch import nn

ROWS = 1024
LEFT = 256
RIGHT = 256


class Model(nn.Module):
    def __init__(self, left, right):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(left, right) * left**-0.5)

    def forward(self, x, y):
        return ((x @ self.weight) * y).sum(dim=-1)


def get_inputs():
    return [torch.randn(ROWS, LEFT), torch.randn(ROWS, RIGHT)]


def get_init_inputs():
    return [LEFT, RIGHT]
