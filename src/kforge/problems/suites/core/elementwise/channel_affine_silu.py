"""Every channel of an image is scaled and shifted, then goes through a SiLU."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 32
SIDE = 64


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.shift = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return nn.functional.silu(x * self.scale + self.shift)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
