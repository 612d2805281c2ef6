"""A linear layer whose outputs are added up to one score a row."""

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
        return 0.5 * self.linear(x).sum(dim=1)


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, OUT]
