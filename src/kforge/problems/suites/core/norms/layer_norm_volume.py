"""Layer norm over channels and space together: few, very long rows."""

import torch
from torch import nn

BATCH = 8
CHANNELS = 32
SIDE = 64


class Model(nn.Module):
    def __init__(self, channels, side):
        super().__init__()
        self.norm = nn.LayerNorm((channels, side, side))
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, SIDE]
