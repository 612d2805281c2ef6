"""Convolution, a bias of its own, a rectifier and a pooling."""

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
        self.bias = nn.Parameter(torch.randn(out, 1, 1))

    def forward(self, x):
        return nn.functional.max_pool2d(torch.relu(self.conv(x) + self.bias), 2)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, OUT]
