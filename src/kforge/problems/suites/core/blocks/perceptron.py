"""Three linear layers with rectifiers between them."""

import torch
from torch import nn

ROWS = 256
INNER = 256
HIDDEN = 512
OUT = 64


class Model(nn.Module):
    def __init__(self, inner, hidden, out):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inner, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out)
        )

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, HIDDEN, OUT]
