"""A linear layer, a GELU, and a dropout that does nothing any more."""

import torch
from torch import nn

ROWS = 512
INNER = 512
OUT = 512


class Model(nn.Module):
    def __init__(self, inner, out):
        super().__init__()
        self.linear = nn.Linear(inner, out)
        self.drop = nn.Dropout(0.1)
        self.eval()

    def forward(self, x):
        return self.drop(nn.functional.gelu(self.linear(x)))


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, OUT]
