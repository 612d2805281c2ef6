"""A classifier's last layer with its softmax."""

import torch
from torch import nn

ROWS = 512
INNER = 384
OUT = 1000


class Model(nn.Module):
    def __init__(self, inner, out):
        super().__init__()
        self.linear = nn.Linear(inner, out)

    def forward(self, x):
        return torch.softmax(self.linear(x), dim=-1)


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, OUT]
