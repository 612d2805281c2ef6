"""Convolution, group norm, swish."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 32
SIDE = 32
OUT = 32
GROUPS = 8


class Model(nn.Module):
    def __init__(self, channels, out, groups):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 3, padding=1)
        self.norm = nn.GroupNorm(groups, out)

    def forward(self, x):
        x = self.norm(self.conv(x))
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, OUT, GROUPS]
