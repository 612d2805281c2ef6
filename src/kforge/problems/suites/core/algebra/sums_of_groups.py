"""A linear layer whose outputs are summed in groups of neighbours."""

import torch
from torch import nn

ROWS = 512
INNER = 512
GROUPS = 16
EACH = 32


class Model(nn.Module):
    def __init__(self, inner, groups, each):
        super().__init__()
        self.groups = groups
        self.linear = nn.Linear(inner, groups * each)

    def forward(self, x):
        return self.linear(x).view(x.shape[0], self.groups, -1).sum(dim=-1)


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, GROUPS, EACH]
