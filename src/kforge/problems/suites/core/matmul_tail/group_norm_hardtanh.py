"""A linear layer, a group norm over its features, a hard limit."""

import torch
from torch import nn

ROWS = 512
INNER = 512
OUT = 512
GROUPS = 16


class Model(nn.Module):
    def __init__(self, inner, out, groups):
        super().__init__()
        self.linear = nn.Linear(inner, out)
        self.norm = nn.GroupNorm(groups, out)

    def forward(self, x):
        return nn.functional.hardtanh(self.norm(self.linear(x)), -2.0, 2.0)


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, OUT, GROUPS]
