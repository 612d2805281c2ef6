"""Convolution, GELU, and the average over the image."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 32
SIDE = 32
OUT = 32


class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 3, padding=1)

    def forward(self, x):
        return nn.functional.gelu(self.conv(x)).mean(dim=(-2, -1))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, 1, 1) + torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, OUT]
