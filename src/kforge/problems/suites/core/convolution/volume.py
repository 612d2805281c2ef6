"""A three-dimensional convolution."""

import torch
from torch import nn

BATCH = 1
CHANNELS = 8
SIDE = 20
OUT = 16


class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv3d(channels, out, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, OUT]
