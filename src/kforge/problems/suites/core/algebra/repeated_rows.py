"""Every row is repeated before a linear layer sees it."""

import torch
from torch import nn

ROWS = 128
INNER = 384
OUT = 256
TIMES = 8


class Model(nn.Module):
    def __init__(self, inner, out, times):
        super().__init__()
        self.linear = nn.Linear(inner, out)
        self.times = times

    def forward(self, x):
        return torch.relu(self.linear(x.repeat_interleave(self.times, dim=0)))


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, OUT, TIMES]
