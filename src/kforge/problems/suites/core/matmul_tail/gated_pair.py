"""Two projections of the same input, one of which gates the other."""

import torch
from torch import nn

ROWS = 512
INNER = 512
OUT = 384


class Model(nn.Module):
    def __init__(self, inner, out):
        super().__init__()
        self.value = nn.Linear(inner, out)
        self.gate = nn.Linear(inner, out)

    def forward(self, x):
        return self.value(x) * torch.sigmoid(self.gate(x))


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, OUT]
