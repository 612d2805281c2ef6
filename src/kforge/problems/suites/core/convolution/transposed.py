"""A transposed convolution that doubles the size."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 32
SIDE = 20
OUT = 16


class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, out, 4, stride=2, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, OUT]
