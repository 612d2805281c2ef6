"""A linear layer whose outputs are scaled, limited and squared."""

import torch
from torch import nn

ROWS = 512
INNER = 512
OUT = 512


class Model(nn.Module):
    def __init__(self, inner, out):
        super().__init__()
        self.linear = nn.Linear(inner, out)
        self.scale = nn.Parameter(torch.rand(out) + 0.5)

    def forward(self, x):
        return torch.clamp(self.linear(x) * self.scale, -1.0, 1.0) ** 2


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, OUT]
