"""The mean over the batch is taken off a linear layer's outputs."""

import torch
from torch import nn

ROWS = 512
INNER = 512
OUT = 512


class Model(nn.Module):
    def __init__(self, inner, out):
        super().__init__()
        self.linear = nn.Linear(inner, out)

    def forward(self, x):
        y = self.linear(x)
        return nn.functional.gelu(y - y.mean(dim=0))


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, OUT]
