"""Wide, then narrow again: two linear layers with nothing between them."""

import torch
from torch import nn

ROWS = 512
INNER = 64
HIDDEN = 1024
OUT = 64


class Model(nn.Module):
    def __init__(self, inner, hidden, out):
        super().__init__()
        self.widen = nn.Linear(inner, hidden)
        self.narrow = nn.Linear(hidden, out)

    def forward(self, x):
        return self.narrow(self.widen(x))


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, HIDDEN, OUT]
