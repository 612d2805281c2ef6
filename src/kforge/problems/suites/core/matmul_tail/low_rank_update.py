"""A frozen layer with a low-rank correction beside it."""

import torch
from torch import nn

ROWS = 512
INNER = 512
OUT = 512
RANK = 8


class Model(nn.Module):
    def __init__(self, inner, out, rank):
        super().__init__()
        self.linear = nn.Linear(inner, out)
        self.down = nn.Parameter(torch.randn(inner, rank) * inner**-0.5)
        self.up = nn.Parameter(torch.randn(rank, out))

    def forward(self, x):
        return self.linear(x) + 0.5 * (x @ self.down) @ self.up


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, OUT, RANK]
